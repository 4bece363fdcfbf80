#include "tests/system/pool/packet_filter.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "compiler_core/base/check.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

Finished iptables(std::vector<std::string> arguments) {
  std::vector<std::string> words = {"/usr/sbin/iptables", "--wait"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(words);
}

bool start_loopback() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool is_up = ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return is_up;
}

}  // namespace

std::string_view PacketFilter::name(Cut cut) {
  constexpr std::string_view kNames[kCuts] = {"none", "both ways", "to the server",
                                              "from the server"};
  return kNames[static_cast<int>(cut)];
}

Status PacketFilter::enter_own_network() {
  if (::access("/usr/sbin/iptables", X_OK) != 0)
    return fail(Code::kUnsupported, "there is no iptables here");
  if (::unshare(CLONE_NEWNET) != 0)
    return fail(Code::kUnsupported, std::string("no network of its own: ") + std::strerror(errno));
  if (!start_loopback()) return fail(Code::kUnsupported, "the new network has no loopback");
  if (const Finished listed = iptables({"-S"}); listed.exit_code != 0)
    return fail(Code::kUnsupported, "iptables: " + listed.err);
  return {};
}

void PacketFilter::cut(int server_port, Cut cut) {
  const std::string port = std::to_string(server_port);
  const auto drop = [&](const char* end) {
    const Finished added = iptables({"-A", "INPUT", "-p", "tcp", end, port, "-j", "DROP"});
    CHECK(added.exit_code == 0, added.err.c_str());
  };
  if (cut == Cut::kBoth || cut == Cut::kToServer) drop("--dport");
  if (cut == Cut::kBoth || cut == Cut::kFromServer) drop("--sport");
}

void PacketFilter::mend() {
  CHECK(iptables({"-F", "INPUT"}).exit_code == 0, "it was there");
}

}  // namespace kiln::testing
