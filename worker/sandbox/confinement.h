// The child's side of the sandbox: what a new process does between clone() and execve() to give up
// everything that its program does not need. It shares its parent's memory until then, so all
// memory is prepared by the parent (sandbox.cc), and nothing here calls the C library.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <span>

namespace kiln {

// One entry of the child's own file system, in this order.
struct SandboxMount {
  enum class Kind : uint8_t { kReadOnly, kWritable, kDevice, kLink, kScratch, kProc };
  Kind kind = Kind::kReadOnly;
  bool is_file = false;
  const char* path = nullptr;    // absolute: here, and in the child
  const char* source = nullptr;  // "/old" + path; of a link what it says, of a scratch its options
};

struct SandboxLimit {
  int resource = 0;
  rlim_t most = 0;  // soft and hard
};

// Owned by the parent, constant, and there until the child has called execve() or failed.
struct Confinement {
  const char* program = nullptr;  // absolute
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* directory = nullptr;  // to work in

  int input = -1, output = -1, error = -1;  // become 0, 1 and 2
  int socket = -1;                          // becomes 3, unless negative
  int go = -1, report = -1;  // pipes: a byte when the parent has mapped our ids; where we say
                             // what failed

  bool namespaces = false;     // this process is the first of its own
  const char* base = nullptr;  // any directory; the own root is mounted over it
  std::span<const SandboxMount> mounts;
  bool landlock = false;  // without namespaces, `mounts` says what may be read and written
  int landlock_abi = 0;
  uid_t uid = 0;  // to become, in its namespace
  gid_t gid = 0;
  bool change_ids = false;
  bool is_root = false;  // the parent: groups can be dropped
  std::span<const SandboxLimit> limits;
  sock_fprog filter{};  // len 0: none
};

// The step that failed, as it comes through `report`; nothing comes when the program was started.
struct ConfinementFailure {
  char step[16] = {};
  int error = 0;
};

// The entry of the child, for clone(); `confinement` is a const Confinement*. Never returns.
int confine_and_execute(void* confinement);

}  // namespace kiln
