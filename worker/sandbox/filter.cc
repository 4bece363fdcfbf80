#include "worker/sandbox/filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

namespace kiln {
namespace {

constexpr const char* kAllowed[] = {
    // memory
    "brk", "mmap", "munmap", "mprotect", "mremap", "madvise", "msync", "mincore", "mlock",
    "munlock", "mlock2", "memfd_create", "membarrier",
    // threads, time, and this process
    "futex", "futex_waitv", "set_robust_list", "get_robust_list", "rseq", "set_tid_address",
    "arch_prctl", "prctl", "getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid",
    "getresuid", "getresgid", "getgroups", "getpgrp", "getpgid", "getsid", "setpgid", "getrusage",
    "getrlimit", "prlimit64", "sysinfo", "uname", "times", "getcpu", "sched_yield",
    "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_getscheduler",
    "sched_get_priority_max", "sched_get_priority_min", "getpriority", "setpriority", "getrandom",
    "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time",
    "alarm", "setitimer", "getitimer", "pause", "restart_syscall", "exit", "exit_group",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigpending",
    "rt_sigtimedwait", "sigaltstack", "tgkill", "umask",
    // files; which ones is the mounts' and Landlock's matter
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "close",
    "close_range", "lseek", "open", "openat", "creat", "stat", "lstat", "fstat", "newfstatat",
    "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getdents",
    "getdents64", "fcntl", "dup", "dup2", "dup3", "pipe", "pipe2", "poll", "ppoll", "select",
    "pselect6", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2",
    "copy_file_range", "sendfile", "fallocate", "ftruncate", "truncate", "fsync", "fdatasync",
    "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "link",
    "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "chdir", "fchdir", "getcwd",
    "utimensat", "utime", "utimes", "fadvise64", "readahead", "flock", "statfs", "fstatfs",
    "getxattr", "lgetxattr", "fgetxattr",
    // the socket it is born with: none can be made
    "recvfrom", "recvmsg", "sendmsg", "shutdown",
    // children, which confine_runner() takes away with a filter more
    "wait4", "seccomp", "waitid", "fork", "vfork", "execve"};

constexpr const char* kDeniedToGpus[] = {"connect",
                                         "accept",
                                         "accept4",
                                         "ptrace",
                                         "process_vm_readv",
                                         "process_vm_writev",
                                         "process_madvise",
                                         "pidfd_open",
                                         "pidfd_getfd",
                                         "pidfd_send_signal",
                                         "kcmp",
                                         "kill",
                                         "tkill",
                                         "rt_sigqueueinfo",
                                         "rt_tgsigqueueinfo",
                                         "mount",
                                         "umount2",
                                         "pivot_root",
                                         "chroot",
                                         "open_tree",
                                         "move_mount",
                                         "fsopen",
                                         "fsconfig",
                                         "fsmount",
                                         "fspick",
                                         "mount_setattr",
                                         "unshare",
                                         "setns",
                                         "name_to_handle_at",
                                         "open_by_handle_at",
                                         "fanotify_init",
                                         "bpf",
                                         "perf_event_open",
                                         "add_key",
                                         "request_key",
                                         "keyctl",
                                         "userfaultfd",
                                         "io_uring_setup",
                                         "io_uring_enter",
                                         "io_uring_register",
                                         "kexec_load",
                                         "kexec_file_load",
                                         "init_module",
                                         "finit_module",
                                         "delete_module",
                                         "reboot",
                                         "swapon",
                                         "swapoff",
                                         "acct",
                                         "quotactl",
                                         "settimeofday",
                                         "clock_settime",
                                         "clock_adjtime",
                                         "adjtimex",
                                         "stime",
                                         "sethostname",
                                         "setdomainname",
                                         "iopl",
                                         "ioperm",
                                         "personality",
                                         "syslog",
                                         "vhangup",
                                         "lookup_dcookie",
                                         "modify_ldt",
                                         "execveat",
                                         "mknod",
                                         "mknodat",
                                         "chown",
                                         "fchown",
                                         "lchown",
                                         "fchownat",
                                         "setxattr",
                                         "lsetxattr",
                                         "fsetxattr",
                                         "setuid",
                                         "setgid",
                                         "setreuid",
                                         "setregid",
                                         "setresuid",
                                         "setresgid",
                                         "setgroups",
                                         "setfsuid",
                                         "setfsgid",
                                         "capset"};

constexpr scmp_datum_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

constexpr scmp_datum_t kSocketTypes = 0xf;

class Filter {
 public:
  explicit Filter(uint32_t otherwise) : context_(::seccomp_init(otherwise)) {
    if (context_ == nullptr) error_ = -ENOMEM;
  }
  ~Filter() {
    if (context_ != nullptr) ::seccomp_release(context_);
  }
  Filter(const Filter&) = delete;

  // A call that this libseccomp does not know cannot be listed, and stays what the rest is.
  void rule(uint32_t action, const char* name, std::span<const scmp_arg_cmp> when = {}) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0 || error_ != 0) return;
    error_ = ::seccomp_rule_add_array(context_, action, number, static_cast<unsigned>(when.size()),
                                      when.data());
  }
  void rules(uint32_t action, std::span<const char* const> names) {
    for (const char* name : names) rule(action, name);
  }

  Result<std::string> program() {
    const int file = ::memfd_create("kiln-filter", MFD_CLOEXEC);
    if (error_ == 0) error_ = file < 0 ? -errno : ::seccomp_export_bpf(context_, file);
    std::string bytes;
    if (error_ == 0) {
      bytes.resize(static_cast<size_t>(::lseek(file, 0, SEEK_CUR)));
      if (::pread(file, bytes.data(), bytes.size(), 0) != std::ssize(bytes)) error_ = -EIO;
    }
    if (file >= 0) ::close(file);
    if (error_ != 0)
      return fail(Code::kUnavailable,
                  std::string("no system-call filter: ") + std::strerror(-error_));
    return bytes;
  }

 private:
  scmp_filter_ctx context_;
  int error_ = 0;
};

}  // namespace

Result<std::string> make_filter(SandboxKind kind) {
  const bool gpu = kind == SandboxKind::kGpuRunner;
  Filter filter(gpu ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ENOSYS));
  const scmp_arg_cmp plain_clone[] = {SCMP_A0(SCMP_CMP_MASKED_EQ, kNamespaces, 0)};
  if (gpu) {
    filter.rules(SCMP_ACT_ERRNO(EPERM), kDeniedToGpus);
    // The driver listens at a local socket of its own, and does not start without one (580.159). One that
    // cannot connect and knows no datagrams reaches nobody.
    const scmp_arg_cmp not_local[] = {SCMP_A0(SCMP_CMP_NE, AF_UNIX)};
    filter.rule(SCMP_ACT_ERRNO(EPERM), "socket", not_local);
    for (const scmp_datum_t type : {SOCK_DGRAM, SOCK_RAW, SOCK_RDM}) {
      const scmp_arg_cmp asked[] = {SCMP_A1(SCMP_CMP_MASKED_EQ, kSocketTypes, type)};
      filter.rule(SCMP_ACT_ERRNO(EPERM), "socket", asked);
    }
    // A filter cannot read clone3's flags; without it glibc takes clone.
    filter.rule(SCMP_ACT_ERRNO(ENOSYS), "clone3");
    for (scmp_datum_t bit = 1; bit <= kNamespaces; bit <<= 1) {
      const scmp_arg_cmp asked[] = {SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit)};
      if ((kNamespaces & bit) != 0) filter.rule(SCMP_ACT_ERRNO(EPERM), "clone", asked);
    }
    // Keystrokes for whoever reads a terminal.
    const scmp_arg_cmp keystrokes[] = {SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, TIOCSTI)};
    filter.rule(SCMP_ACT_ERRNO(EPERM), "ioctl", keystrokes);
    return filter.program();
  }
  filter.rules(SCMP_ACT_ALLOW, kAllowed);
  filter.rule(SCMP_ACT_ALLOW, "clone", plain_clone);
  for (const unsigned long request : {TCGETS, FIONREAD, TIOCGWINSZ}) {
    const scmp_arg_cmp asked[] = {SCMP_A1(SCMP_CMP_EQ, request)};
    filter.rule(SCMP_ACT_ALLOW, "ioctl", asked);
  }
  // To the peer of a connected socket; an address would be another's.
  const scmp_arg_cmp no_address[] = {SCMP_A4(SCMP_CMP_EQ, 0)};
  filter.rule(SCMP_ACT_ALLOW, "sendto", no_address);
  return filter.program();
}

Status confine_runner() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return {};  // their leak check starts a process that traces this one
#else
  Filter filter(SCMP_ACT_ALLOW);
  constexpr const char* kGone[] = {"fork", "vfork", "execve", "execveat", "kill", "tkill"};
  filter.rules(SCMP_ACT_ERRNO(EPERM), kGone);
  filter.rule(SCMP_ACT_ERRNO(ENOSYS), "clone3");
  const scmp_arg_cmp process[] = {SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)};
  filter.rule(SCMP_ACT_ERRNO(EPERM), "clone", process);
  const scmp_arg_cmp others[] = {
      SCMP_A0(SCMP_CMP_NE, static_cast<scmp_datum_t>(static_cast<uint32_t>(::getpid())))};
  filter.rule(SCMP_ACT_ERRNO(EPERM), "tgkill", others);
  TRY(std::string program, filter.program());
  const sock_fprog installed{static_cast<unsigned short>(program.size() / sizeof(sock_filter)),
                             reinterpret_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &installed) !=
          0)
    return fail(Code::kUnavailable, std::string("no system-call filter: ") + std::strerror(errno));
  return {};
#endif
}

}  // namespace kiln
