// `kiln init`: the keys of a first cluster, and the commands that use them on each machine.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/make_key.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "schema/keys/key_file.h"

namespace kiln::cli {
namespace {

struct Member {
  const char* name;
  const char* role;
};
constexpr std::array<Member, 4> kMembers = {
    {{"admin", "admin"}, {"ci", "submit"}, {"replica", "read"}, {"worker", "worker"}}};

std::string this_host() {
  std::array<char, 256> host{};
  return ::gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "HOST";
}

// Keys that are there already stay: whoever has them goes on. Those that are made are named.
Result<std::vector<Path>> make_keys(const Options& options, const Path& folder) {
  TRY_STATUS(make_directories(folder));
  TRY(const std::vector<AuthorizedKey> known, read_authorized_keys(keys_folder(options)));
  std::vector<Path> made;
  for (const Member& member : kMembers) {
    const bool there = std::any_of(known.begin(), known.end(), [&](const AuthorizedKey& key) {
      return key.name == member.name;
    });
    if (there) continue;
    Options one = options;
    one.files = {member.name};
    one.role = member.role;
    one.out = (folder / (std::string(member.name) + ".key")).string();
    TRY(Path file, make_key(one));
    made.push_back(std::move(file));
  }
  return made;
}

std::string next_steps(const Options& options, const Path& folder, const std::string& host) {
  return fmt::format(
      "On this machine, the coordinator:\n"
      "  kiln-coordinator --data-dir {0} --listen tcp://0.0.0.0:7557\n"
      "On each machine with a GPU or cores to spare, with {1}/worker.key brought there:\n"
      "  kiln-worker --key worker.key --coordinator tcp://{2}:7557 --device cuda:0\n"
      "In CI, with {1}/ci.key, before a model ships:\n"
      "  kiln warm model.pt2 --mode max-autotune --key ci.key --coordinator tcp://{2}:7557\n"
      "In a serving replica, with {1}/replica.key:\n"
      "  KILN_KEY=replica.key KILN_COORDINATOR=tcp://{2}:7557 python serve.py\n"
      "To look after it, with {1}/admin.key:\n"
      "  kiln stats --key admin.key --coordinator tcp://{2}:7557\n"
      "`kiln doctor` on any of them says what is missing there.\n",
      options.data_dir, folder.string(), host);
}

}  // namespace

int init_command(const Options& options) {
  const Path folder = options.out.empty() ? Path("kiln-keys") : Path(options.out);
  const auto made = make_keys(options, folder);
  if (!made) {
    print_error("", made.error());
    return exit_code_of(made.error());
  }
  const std::string host = this_host();
  if (options.json) {
    auto files = nlohmann::ordered_json::array();
    for (const Path& file : *made) files.push_back(file.string());
    const nlohmann::ordered_json object = {{"data_dir", options.data_dir},
                                           {"keys", keys_folder(options).string()},
                                           {"made", std::move(files)}};
    std::printf("%s\n", object.dump().c_str());
    return kDone;
  }
  std::string text;
  for (const Path& file : *made) text += "made " + file.string() + "\n";
  if (made->empty()) text = "every key is there already; `kiln keys list` names them\n";
  std::fputs((text + next_steps(options, folder, host)).c_str(), stdout);
  return kDone;
}

}  // namespace kiln::cli
