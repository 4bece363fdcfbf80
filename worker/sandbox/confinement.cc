#include "worker/sandbox/confinement.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

// The memory is the parent's, also that of a sanitizer.
#define KILN_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))

// Newer than the headers that Kiln is built with.
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

namespace kiln {
namespace {

constexpr uint64_t kAttrReadOnly = 1, kAttrNoSuid = 2, kAttrNoDevices = 4, kAttrNoExec = 8;
constexpr unsigned kRecursive = 0x8000;     // AT_RECURSIVE
constexpr uint64_t kRefer = 1 << 13;        // LANDLOCK_ACCESS_FS_REFER, from version 2
constexpr uint64_t kTruncate = 1 << 14;     // from version 3
constexpr uint64_t kIoctlDevice = 1 << 15;  // from version 5
constexpr int kLastCapability = 63;
// The files that programs may read of the machine in /proc; self is the first process of the sandbox.
constexpr const char* kProcParts[] = {"self",    "cpuinfo", "meminfo", "stat",
                                      "version", "devices", "driver",  "sys"};
constexpr size_t kLongestProcPart = 32;

struct MountAttributes {  // struct mount_attr
  uint64_t set = 0, clear = 0, propagation = 0, user_namespace = 0;
};
struct LandlockRuleset {  // struct landlock_ruleset_attr of version 6
  uint64_t files = 0, network = 0, scopes = 0;
};
struct CapabilityHeader {
  uint32_t version = 0x20080522;
  int pid = 0;
};
struct Capabilities {
  uint32_t effective = 0, permitted = 0, inheritable = 0;
};

// errno is the parent's, too: -errno is returned.
template <class... Arguments>
KILN_IN_CHILD long call(long number, Arguments... arguments) {
  long words[6] = {0, 0, 0, 0, 0, 0};
  size_t i = 0;
  ((words[i++] = (long)arguments), ...);
  register long r10 asm("r10") = words[3];
  register long r8 asm("r8") = words[4];
  register long r9 asm("r9") = words[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(r10), "r"(r8),
                 "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

class Child {
 public:
  KILN_IN_CHILD explicit Child(const Confinement& plan) : plan_(plan) {}

  [[noreturn]] KILN_IN_CHILD void run() {
    check("signals", reset_signals());
    check("setsid", call(SYS_setsid));
    call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    arrange_descriptors();  // before anything waits: we have copies of the parent's locks
    await_parent();
    if (plan_.namespaces) call(SYS_unshare, CLONE_NEWIPC);  // where a unit or a profile allows it
    // As the parent's user, who may see the folders; in it all belongs to nobody.
    if (plan_.namespaces) make_root();
    drop_bounding_set();
    become_nobody();
    check("chdir", call(SYS_chdir, plan_.directory));
    for (const SandboxLimit& limit : plan_.limits) lower(limit);
    drop_privileges();
    if (plan_.landlock) restrict_files();
    if (plan_.filter.len > 0)
      check("seccomp", call(SYS_seccomp, 1 /* filter */, 4 /* SPEC_ALLOW: no slower kernels */,
                            &plan_.filter));
    uint64_t none = 0;
    call(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
    check("start", call(SYS_execve, plan_.program, plan_.arguments, plan_.environment));
    fail("start", ENOSYS);
  }

 private:
  [[noreturn]] KILN_IN_CHILD void fail(const char* step, int error) const {
    ConfinementFailure failure;
    for (size_t i = 0; step[i] != '\0' && i + 1 < sizeof failure.step; ++i)
      failure.step[i] = step[i];
    failure.error = error;
    call(SYS_write, report_, &failure, sizeof failure);
    for (;;) call(SYS_exit_group, 127);
  }
  KILN_IN_CHILD long check(const char* step, long result) const {
    if (result < 0) fail(step, static_cast<int>(-result));
    return result;
  }

  // Our handlers' code is not there any more after execve(); what was ignored would stay so.
  KILN_IN_CHILD static long reset_signals() {
    struct {
      void* handler = nullptr;
      unsigned long flags = 0;
      void* restorer = nullptr;
      uint64_t mask = 0;
    } action;
    for (int signal = 1; signal < 65; ++signal)
      call(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
    return 0;
  }

  // The read ends when the parent is killed: nobody has the other end of the pipe by then, not even we.
  KILN_IN_CHILD void await_parent() const {
    char byte = 0;
    if (call(SYS_read, go_, &byte, 1) != 1) fail("parent", EPIPE);
    call(SYS_close, go_);
  }

  KILN_IN_CHILD void become_nobody() const {
    if (!plan_.change_ids) return;
    if (plan_.is_root) check("setgroups", call(SYS_setgroups, 0, nullptr));
    check("setgid", call(SYS_setresgid, plan_.gid, plan_.gid, plan_.gid));
    check("setuid", call(SYS_setresuid, plan_.uid, plan_.uid, plan_.uid));
    call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // forgotten with the ids
  }

  // ---- The own file system ----

  KILN_IN_CHILD void make_root() const {
    check("mount", call(SYS_mount, nullptr, "/", nullptr, MS_SLAVE | MS_REC, nullptr));
    check("mount root",
          call(SYS_mount, "tmpfs", plan_.base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m"));
    check("chdir root", call(SYS_chdir, plan_.base));
    check("mkdir", call(SYS_mkdir, "old", 0700));
    check("pivot_root", call(SYS_pivot_root, ".", "old"));
    check("chdir root", call(SYS_chdir, "/"));
    for (const SandboxMount& mount : plan_.mounts) put(mount);
    check("umount", call(SYS_umount2, "/old", MNT_DETACH));
    call(SYS_rmdir, "/old");
    check("remount", call(SYS_mount, nullptr, "/", nullptr,
                          MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr));
  }

  KILN_IN_CHILD static void make_directories(const char* path, bool last_too) {
    char at[4096];
    for (size_t i = 0; i + 1 < sizeof at; ++i) {
      at[i] = path[i];
      const bool end = path[i] == '\0';
      if (i > 0 && (path[i] == '/' || (end && last_too))) {
        at[i] = '\0';
        call(SYS_mkdir, at, 0755);
        at[i] = '/';
      }
      if (end) return;
    }
  }

  KILN_IN_CHILD static void make_file(const char* path) {
    const long file = call(SYS_open, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) call(SYS_close, file);
  }

  KILN_IN_CHILD void bind_proc_parts() const {
    for (const char* part : kProcParts) {
      char source[sizeof "/old/proc/" + kLongestProcPart] = "/old/proc/";
      for (size_t i = 0, at = sizeof "/old/proc/" - 1; part[i] != '\0'; ++i) source[at++] = part[i];
      const char* const path = source + sizeof "/old" - 1;
      struct stat found {};
      if (call(SYS_stat, source, &found) < 0) continue;
      if (S_ISDIR(found.st_mode))
        call(SYS_mkdir, path, 0755);
      else
        make_file(path);
      check("bind proc", call(SYS_mount, source, path, nullptr, MS_BIND | MS_REC, nullptr));
      MountAttributes attributes;
      attributes.set = kAttrReadOnly | kAttrNoSuid | kAttrNoDevices | kAttrNoExec;
      check("bind proc",
            call(SYS_mount_setattr, -1, path, kRecursive, &attributes, sizeof attributes));
    }
  }

  KILN_IN_CHILD void put(const SandboxMount& mount) const {
    using Kind = SandboxMount::Kind;
    if (mount.kind == Kind::kLink) {
      make_directories(mount.path, false);
      check("symlink", call(SYS_symlink, mount.source, mount.path));
      return;
    }
    make_directories(mount.path, !mount.is_file);
    if (mount.kind == Kind::kProc) {
      const long made =
          call(SYS_mount, "proc", mount.path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
      // Where parts of /proc are hidden from us, Linux lets nobody mount one that hides nothing.
      if (made == -EPERM)
        bind_proc_parts();
      else
        check("mount proc", made);
      return;
    }
    if (mount.kind == Kind::kScratch) {
      check("mount tmpfs",
            call(SYS_mount, "tmpfs", mount.path, "tmpfs", MS_NOSUID | MS_NODEV, mount.source));
      return;
    }
    if (mount.is_file) make_file(mount.path);
    check("bind", call(SYS_mount, mount.source, mount.path, nullptr, MS_BIND | MS_REC, nullptr));
    MountAttributes attributes;
    attributes.set = kAttrNoSuid;
    if (mount.kind == Kind::kReadOnly) attributes.set |= kAttrReadOnly | kAttrNoDevices;
    if (mount.kind == Kind::kWritable) attributes.set |= kAttrNoDevices;
    if (mount.kind == Kind::kDevice) attributes.set |= kAttrNoExec;
    check("mount_setattr", call(SYS_mount_setattr, AT_FDCWD, mount.path, kRecursive, &attributes,
                                sizeof attributes));
  }

  // ---- What it has open, and what it may use ----

  KILN_IN_CHILD void arrange_descriptors() {
    // Out of the way of those that get a number.
    constexpr int kFirstFree = 10;
    const long input = check("dup", call(SYS_fcntl, plan_.input, F_DUPFD, kFirstFree));
    const long output = check("dup", call(SYS_fcntl, plan_.output, F_DUPFD, kFirstFree));
    const long error = check("dup", call(SYS_fcntl, plan_.error, F_DUPFD, kFirstFree));
    const long report = check("dup", call(SYS_fcntl, plan_.report, F_DUPFD, kFirstFree));
    const long go = check("dup", call(SYS_fcntl, plan_.go, F_DUPFD, kFirstFree));
    const long socket =
        plan_.socket < 0 ? -1 : check("dup", call(SYS_fcntl, plan_.socket, F_DUPFD, kFirstFree));
    call(SYS_dup2, input, 0);
    call(SYS_dup2, output, 1);
    call(SYS_dup2, error, 2);
    if (socket >= 0) call(SYS_dup2, socket, 3);
    const long first = socket >= 0 ? 4 : 3;
    check("dup", call(SYS_dup3, report, first, O_CLOEXEC));
    report_ = first;
    check("dup", call(SYS_dup3, go, first + 1, O_CLOEXEC));
    go_ = first + 1;
    check("close", call(SYS_close_range, first + 2, ~0U, 0));
  }

  KILN_IN_CHILD static void lower(const SandboxLimit& limit) {
    rlimit64 now{};
    if (call(SYS_prlimit64, 0, limit.resource, nullptr, &now) < 0) return;
    const rlim_t most = limit.most < now.rlim_max ? limit.most : now.rlim_max;
    rlimit64 lowered{most, most};
    call(SYS_prlimit64, 0, limit.resource, &lowered, nullptr);
  }

  KILN_IN_CHILD static void drop_bounding_set() {
    for (int capability = 0; capability <= kLastCapability; ++capability)
      call(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
    call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    call(SYS_prctl, PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0);
  }

  KILN_IN_CHILD void drop_privileges() const {
    CapabilityHeader header;
    Capabilities held[2], none[2];
    uint32_t any = ~0U;
    if (call(SYS_capget, &header, &held) == 0)
      any = held[0].effective | held[0].permitted | held[0].inheritable | held[1].effective |
            held[1].permitted | held[1].inheritable;
    // capset may be forbidden (ops/systemd/confined.conf); a child without capabilities needs no call.
    if (any != 0) check("capset", call(SYS_capset, &header, &none));
    check("no_new_privs", call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  }

  // Below `path`, if it is there.
  KILN_IN_CHILD void allow(long rules, const char* path, uint64_t access) const {
    const long file = call(SYS_open, path, O_PATH | O_CLOEXEC, 0);
    if (file < 0) return;
    landlock_path_beneath_attr rule{};
    rule.parent_fd = static_cast<int>(file);
    rule.allowed_access = access;
    check("landlock rule",
          call(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
    call(SYS_close, file);
  }

  KILN_IN_CHILD void restrict_files() const {
    const int abi = plan_.landlock_abi;
    uint64_t all = kRefer - 1;
    if (abi >= 2) all |= kRefer;
    if (abi >= 3) all |= kTruncate;
    if (abi >= 5) all |= kIoctlDevice;
    LandlockRuleset ruleset;
    ruleset.files = all;
    if (abi >= 4) ruleset.network = 3;  // binding and connecting of TCP
    if (abi >= 6) ruleset.scopes = 3;   // abstract sockets and signals
    const size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
    const long rules = check("landlock", call(SYS_landlock_create_ruleset, &ruleset, size, 0));
    constexpr uint64_t kRead =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                                  LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate | kIoctlDevice;
    using Kind = SandboxMount::Kind;
    for (const SandboxMount& mount : plan_.mounts) {
      if (mount.kind == Kind::kLink) continue;
      if (mount.kind == Kind::kScratch && !plan_.namespaces) continue;  // nothing is mounted there
      const bool processes = mount.kind == Kind::kProc && !plan_.namespaces;
      uint64_t access = kRead;
      if (mount.kind == Kind::kWritable || mount.kind == Kind::kScratch)
        access = all & ~kIoctlDevice;
      if (mount.kind == Kind::kDevice)
        access = (kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | kIoctlDevice) & all;
      if (mount.is_file) access &= kOfFiles;
      allow(rules, processes ? "/proc/self" : mount.path, access);
    }
    // The names of its own threads: NVIDIA's driver does not start without giving one (580.159).
    allow(rules, "/proc/self/task", kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | (kTruncate & all));
    check("landlock", call(SYS_landlock_restrict_self, rules, 0));
    call(SYS_close, rules);
  }

  const Confinement& plan_;
  long report_ = plan_.report, go_ = plan_.go;
};

}  // namespace

KILN_IN_CHILD int confine_and_execute(void* confinement) {
  Child(*static_cast<const Confinement*>(confinement)).run();
}

}  // namespace kiln
