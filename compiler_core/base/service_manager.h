// ServiceManager: tells the program that supervises this one (systemd with Type=notify) that it is
// ready, alive or stopping. Protocol: sd_notify(3), a datagram of "NAME=value" lines.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <string_view>

namespace kiln {

class ServiceManager {
 public:
  // `socket`: NOTIFY_SOCKET, a path, or "@name" in the abstract namespace. `watchdog_us`:
  // WATCHDOG_USEC, the time after which a silent process is taken for hung. Empty: not supervised.
  ServiceManager(std::string socket, const std::string& watchdog_us);

  // Never waits and never fails: a supervisor that does not listen is its own trouble.
  void ready() const { tell("READY=1"); }
  void stopping() const { tell("STOPPING=1"); }

  // The next of `signals`, which must be blocked. While it waits it says that the process is alive
  // as often as the watchdog wants, as long as `alive()`.
  int wait(const sigset_t& signals, const std::function<bool()>& alive) const;

 private:
  void tell(std::string_view state) const;

  std::string socket_;
  std::chrono::microseconds beat_{0};  // half of the watchdog's time; zero: it has none
};

}  // namespace kiln
