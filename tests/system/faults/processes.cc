#include "tests/system/faults/processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "compiler_core/base/file.h"

namespace kiln::testing {

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::vector<Descendant> living_descendants() {
  struct Process {
    std::string name;
    char state = 0;
    pid_t parent = 0;
  };
  std::map<pid_t, Process> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string text = entry.path().filename();
    if (text.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = read_file(entry.path() / "stat").value_or("");  // it may end any time
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos) continue;
    Process process{stat.substr(open + 1, close - open - 1), 0, 0};
    std::sscanf(stat.c_str() + close + 1, " %c %d", &process.state, &process.parent);
    all[std::stoi(text)] = process;
  }
  std::vector<Descendant> found;
  for (const auto& [pid, process] : all) {
    pid_t up = process.parent;
    while (up > 1 && up != ::getpid() && all.contains(up)) up = all[up].parent;
    if (up != ::getpid()) continue;
    if (process.state == 'Z') {
      // Our own children are waited for by whoever started them, orphans that we adopted by nobody.
      const bool own = process.name == "kiln" || process.name == "kiln-worker" ||
                       process.name.starts_with("kiln-coord");
      if (!own) ::waitpid(pid, nullptr, WNOHANG);
      continue;
    }
    found.push_back({pid, process.parent, process.name});
  }
  return found;
}

}  // namespace kiln::testing
