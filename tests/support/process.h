// Real processes for system tests: run a command to its end, or keep one in the background.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln::testing {

struct Finished {
  int exit_code = -1;  // 128 + N when signal N ended it
  std::string out, err;
  nlohmann::json json() const;  // of `out`; a discarded value when it is none
};

// Runs `arguments` (the first is a path) with `environment` added, at most `timeout_s`, then kills
// it.
Finished run(const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment = {}, int timeout_s = 120);

// As run(), of a `kiln` whose coordinator is there: again, for a minute, while it says that none
// answers. A coordinator that gets no CPU time for two seconds is away to it.
Finished ask(const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment = {}, int timeout_s = 120);

// Sleeps, between two looks at what must come.
void pause_ms(int ms);

// A child in the background, killed when the object goes.
class Child {
 public:
  // It ends when the thread that started it does.
  static Child start(const std::vector<std::string>& arguments, const Path& out, const Path& err,
                     const std::vector<std::string>& environment = {});
  static Child none() { return Child(-1); }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), exit_code_(other.exit_code_) {}
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  int wait();                                   // exit code as in Finished
  bool running();                               // false: it was waited for
  int exit_code() const { return exit_code_; }  // once it no longer runs

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

// build/.../bin/NAME.
std::string binary(const std::string& name);

// `kiln up` on a data directory, ready.
class Service {
 public:
  explicit Service(Path data_dir, std::vector<std::string> more = {},
                   std::string kiln = binary("kiln"));
  const std::string& endpoint() const { return endpoint_; }
  Child& child() { return child_; }
  std::string log() const;
  void kill();  // -9, and waits for the whole household to be gone
  int stop();   // SIGTERM; its exit code

 private:
  Path data_dir_;
  Child child_;
  std::string endpoint_;
};

// Processes below `ancestor` whose executable is named `name`.
std::vector<pid_t> descendants(pid_t ancestor, const std::string& name);

// Waits up to a minute for `pid` to end; a zombie has ended.
bool ends(pid_t pid);

// tests/graphs/small/NAME
std::string small_graph(const std::string& name);

}  // namespace kiln::testing
