#include "compiler_core/base/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <ctime>

namespace kiln {

ServiceManager::ServiceManager(std::string socket, const std::string& watchdog_us)
    : socket_(std::move(socket)) {
  int64_t us = 0;
  std::from_chars(watchdog_us.data(), watchdog_us.data() + watchdog_us.size(), us);
  beat_ = std::chrono::microseconds(std::max<int64_t>(us, 0) / 2);
}

int ServiceManager::wait(const sigset_t& signals, const std::function<bool()>& alive) const {
  while (true) {
    if (beat_.count() == 0 || socket_.empty()) {
      int signal = 0;
      ::sigwait(&signals, &signal);
      return signal;
    }
    const timespec patience{static_cast<time_t>(beat_.count() / 1'000'000),
                            static_cast<long>(beat_.count() % 1'000'000 * 1000)};
    if (const int signal = ::sigtimedwait(&signals, nullptr, &patience); signal > 0) return signal;
    if (errno == EAGAIN && alive()) tell("WATCHDOG=1");
  }
}

void ServiceManager::tell(std::string_view state) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  ::sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), length);
  ::close(descriptor);
}

}  // namespace kiln
