// Sandbox: how a worker starts compilers and runners, which run what others wrote. Each child gets
//
//   namespaces  its own user, mounts, processes, network and IPC: a root of its own with the
//               toolchain read-only and one directory to write in, no other process, no interface;
//               what it leaves behind is killed with it
//   landlock    the same files, checked once more, also where there are no namespaces; no TCP
//   filter      system calls (filter.h)
//   limits      memory, processor time, file sizes, processes, descriptors; no core files
//
// and always: no privileges and none to be had, no descriptors but its own; with namespaces another
// user than root.
// Constant after open(); thread-safe. A child dies with the thread that started it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "worker/sandbox/filter.h"

namespace kiln {

struct SandboxPieces {
  bool namespaces = true;
  bool landlock = true;
  bool filter = true;
  bool whole() const { return namespaces && landlock && filter; }
};

class Sandbox {
 public:
  enum class Mode : uint8_t { kAuto, kRequire, kOff };

  struct Options {
    Mode mode = Mode::kAuto;
    // Files and folders that programs may read beside the system's own (/usr, /lib, ...): the
    // runner, compilers and libraries that lie elsewhere.
    std::vector<Path> readable;
    bool gpu = false;                           // the device nodes of NVIDIA's driver, and /sys
    std::string search_path = "/usr/bin:/bin";  // PATH, for programs named without a folder
  };
  // Tries with `probe` (a program that ends with 0 and its arguments) what the kernel gives: all
  // pieces, then fewer. Null with Mode::kOff. kUnsupported with kRequire when a piece is missing,
  // by name.
  static Result<std::shared_ptr<const Sandbox>> open(Options options,
                                                     const std::vector<std::string>& probe);

  const SandboxPieces& pieces() const { return pieces_; }
  // "namespaces, landlock, filter, limits", or what is there and what is not, and why.
  std::string describe() const;
  // The same with fewer pieces, for programs that do not work in this one.
  std::shared_ptr<const Sandbox> reduced(SandboxPieces pieces, const std::string& why) const;

  struct Command {
    SandboxKind kind = SandboxKind::kCompiler;
    std::vector<std::string> words;        // the first is looked up on PATH
    std::vector<std::string> environment;  // "NAME=value"
    // To work in; compilers may write there. Runners have memory of 64 MiB in its place, or, where
    // there are no namespaces, may write nowhere.
    Path directory;
    int output = -1;  // its stdout and stderr; negative: nowhere
    int socket = -1;  // its descriptor 3, unless negative
  };
  // kNotFound: there is no such program; kUnavailable: the system lacks something, named.
  Result<pid_t> spawn(const Command& command) const;

 private:
  Sandbox(Options options, SandboxPieces pieces);
  Status make_filters();

  Options options_;
  SandboxPieces pieces_;
  std::string why_;  // a piece is missing
  int landlock_abi_ = 0;
  std::string filters_[3];  // by SandboxKind
};

}  // namespace kiln
