#include "client/cli/interruption.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "compiler_core/compile/child_process.h"

namespace kiln::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// A handler may do little more than to wake somebody.
struct Arrival {
  Arrival() { ::sem_init(&event, 0, 0); }
  sem_t event;
  std::atomic<int> signal = 0;  // 0: the command is done
};
Arrival& arrival() {
  static Arrival only;
  return only;
}

extern "C" void note_signal(int signal) {
  const int error = errno;
  arrival().signal = signal;
  ::sem_post(&arrival().event);
  errno = error;
}

}  // namespace

Interruption::Interruption(std::string last_words) : last_words_(std::move(last_words)) {
  arrival().signal = 0;  // exists before a handler needs it
  while (::sem_trywait(&arrival().event) == 0) {
  }
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    before_[i] = ::signal(kSignals[i], note_signal);
    if (before_[i] == SIG_IGN) ::signal(kSignals[i], SIG_IGN);
  }
  waiting_ = std::thread([this] { wait(); });
}

Interruption::~Interruption() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::signal(kSignals[i], before_[i]);
  ::sem_post(&arrival().event);
  waiting_.join();
}

void Interruption::wait() const {
  while (::sem_wait(&arrival().event) != 0 && errno == EINTR) {
  }
  const int signal = arrival().signal;
  if (signal == 0) return;
  const std::string text =
      (::isatty(STDERR_FILENO) == 1 ? "\r\033[K\n" : "") + ("kiln: " + last_words_ + "\n");
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  end_children();
  ::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
  for (;;) ::pause();
}

}  // namespace kiln::cli
