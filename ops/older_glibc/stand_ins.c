// What glibc 2.28 lacks of what Kiln and the libraries in its wheel use, made of what it has: the
// wheel's libkiln_glibc.so. What bind.py has bound finds each name below here, whatever glibc it runs
// on; where the machine's own has the better function, that one is called.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// ---- There in 2.28, but under another version than the one bind.py turns to, or another name.

__asm__(
    ".macro passed_on name, to\n"
    ".globl \\name\n"
    ".type \\name, @function\n"
    "\\name: jmp *to_\\name@GOTPCREL(%rip)\n"
    ".symver to_\\name, \\to\n"
    ".endm\n"
    ".pushsection .text\n"
    "passed_on dlinfo, dlinfo@GLIBC_2.3.3\n"
    "passed_on dn_expand, __dn_expand@GLIBC_2.2.5\n"
    "passed_on ns_name_uncompress, ns_name_uncompress@GLIBC_2.9\n"
    "passed_on pthread_setaffinity_np, pthread_setaffinity_np@GLIBC_2.3.4\n"
    "passed_on pthread_setname_np, pthread_setname_np@GLIBC_2.12\n"
    "passed_on res_nsearch, __res_nsearch@GLIBC_2.2.5\n"
    "passed_on res_query, __res_query@GLIBC_2.2.5\n"
    "passed_on thrd_exit, thrd_exit@GLIBC_2.28\n"
    ".popsection\n");

// ---- The system calls themselves. On x86-64 the kernel's struct stat is the library's.

#define STAT(suffix)                                                                       \
  int stat##suffix(const char* path, struct stat##suffix* out) {                           \
    return (int)syscall(SYS_stat, path, out);                                              \
  }                                                                                        \
  int lstat##suffix(const char* path, struct stat##suffix* out) {                          \
    return (int)syscall(SYS_lstat, path, out);                                             \
  }                                                                                        \
  int fstat##suffix(int fd, struct stat##suffix* out) {                                    \
    return (int)syscall(SYS_fstat, fd, out);                                               \
  }                                                                                        \
  int fstatat##suffix(int folder, const char* path, struct stat##suffix* out, int flags) { \
    return (int)syscall(SYS_newfstatat, folder, path, out, flags);                         \
  }
STAT()
STAT(64)

int mknodat(int folder, const char* path, mode_t mode, dev_t device) {
  return (int)syscall(SYS_mknodat, folder, path, mode, device);
}

uint32_t arc4random(void) {
  uint32_t number;
  while (getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) abort();
  return number;
}

// ---- The machine's own where it is new enough, else the nearest.

static __typeof__(mallinfo2)* own_mallinfo2;
static __typeof__(pthread_cond_clockwait)* own_clockwait;
static __typeof__(posix_spawn_file_actions_addchdir_np)* own_addchdir;

__attribute__((constructor)) static void look_for_own(void) {
  own_mallinfo2 = dlvsym(RTLD_DEFAULT, "mallinfo2", "GLIBC_2.33");
  own_clockwait = dlvsym(RTLD_DEFAULT, "pthread_cond_clockwait", "GLIBC_2.30");
  own_addchdir = dlvsym(RTLD_DEFAULT, "posix_spawn_file_actions_addchdir_np", "GLIBC_2.29");
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // mallinfo
struct mallinfo2 mallinfo2(void) {
  if (own_mallinfo2) return own_mallinfo2();
  const struct mallinfo all = mallinfo();  // in 32 bits each: sizes are modulo 4 GiB
#define WIDE(field) .field = (unsigned)all.field
  return (struct mallinfo2){WIDE(arena),    WIDE(ordblks), WIDE(smblks),  WIDE(hblks),
                            WIDE(hblkhd),   WIDE(usmblks), WIDE(fsmblks), WIDE(uordblks),
                            WIDE(fordblks), WIDE(keepcost)};
}

// Like GCC 9's std::condition_variable: a clock that is set meanwhile moves the deadline.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  if (own_clockwait) return own_clockwait(condition, mutex, clock, until);
  const int64_t second = 1000000000;
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  int64_t seconds = real.tv_sec + (until->tv_sec - now.tv_sec);
  int64_t rest = real.tv_nsec + (until->tv_nsec - now.tv_nsec);
  if (rest < 0) seconds -= 1, rest += second;
  if (rest >= second) seconds += 1, rest -= second;
  return pthread_cond_timedwait(condition, mutex, &(struct timespec){seconds, rest});
}

int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t* actions, const char* path) {
  return own_addchdir ? own_addchdir(actions, path) : ENOSYS;
}

const char* sigdescr_np(int signal) {
  return signal > 0 && signal < __SIGRTMIN ? strsignal(signal) : NULL;
}

char __libc_single_threaded = 0;  // false is always safe

// ---- A program's first call. What crt1.o passes since 2.34 has no function that runs the program's
// constructors, since glibc finds them itself; before, it did not.

typedef void Constructor(int, char**, char**);

static void run_constructors(int argc, char** argv, char** environment) {
  const struct link_map* program = _r_debug.r_map;
  Constructor** all = NULL;
  size_t count = 0;
  for (const ElfW(Dyn)* entry = program->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) address = program->l_addr + entry->d_un.d_ptr;
    if (entry->d_tag == DT_INIT) ((Constructor*)address)(argc, argv, environment);
    if (entry->d_tag == DT_INIT_ARRAY) all = (Constructor**)address;
    if (entry->d_tag == DT_INIT_ARRAYSZ) count = entry->d_un.d_val / sizeof *all;
  }
  for (size_t i = 0; i < count; ++i) all[i](argc, argv, environment);
}

int __libc_start_main(int (*)(int, char**, char**), int, char**, Constructor*, void (*)(void),
                      void (*)(void), void*);

int __kiln_start_main(int (*main)(int, char**, char**), int argc, char** argv, Constructor* none,
                      void (*fini)(void), void (*loader_fini)(void), void* stack_end) {
  (void)none;
  return __libc_start_main(main, argc, argv, run_constructors, fini, loader_fini, stack_end);
}
