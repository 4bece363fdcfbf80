// libmicrohttpd without threads: this file polls its epoll descriptor, so that it can also end
// connections by their age, which no option of the library bounds (a peer that sends a byte a
// second is never silent).
#include "schema/metrics/http_port.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <unordered_map>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 64;
constexpr int64_t kPollMs = 1'000;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto bad = [&] {
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is not an address for HTTP; write 127.0.0.1:9557, or [::1]:9557 "
                            "(port 0 picks a free one)",
                            text));
  };
  if (colon == std::string::npos) return bad();
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host == "localhost") {
    host = "127.0.0.1";
  }
  const std::string port = text.substr(colon + 1);
  if (host.empty() || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535) {
    return bad();
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return bad();
  Address address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

Result<int> listen_on(const Address& address, const std::string& text) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(Code::kUnavailable, "no socket for HTTP: out of descriptors?");
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return fail(error == EADDRINUSE ? Code::kUnavailable : Code::kInvalidArgument,
                fmt::format("cannot listen for HTTP on {}: {}", text, std::strerror(error)));
  }
  return fd;
}

std::string endpoint_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host.data(), host.size(), port.data(),
              port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  const bool bare = bound.ss_family != AF_INET6;
  return fmt::format("http://{}{}{}:{}", bare ? "" : "[", host.data(), bare ? "" : "]",
                     port.data());
}

}  // namespace

struct HttpPort::Impl {
  struct Open {
    int fd = -1;
    Clock::time_point since;
  };

  void run();
  void cut_the_old();

  HttpLimits limits;
  Pages pages;
  std::string endpoint;
  int wake = -1, epoll = -1;
  MHD_Daemon* daemon = nullptr;
  std::unordered_map<MHD_Connection*, Open> open;  // the thread's own
  std::atomic<bool> stopping{false};
  std::thread thread;
};

namespace {

MHD_Result answer(void* self, MHD_Connection* connection, const char* url, const char* method,
                  const char*, const char*, size_t*, void**) {
  const std::string_view verb = method;
  HttpAnswer page{405, "text/plain; charset=utf-8", "GET is all that is answered here\n"};
  if (verb == MHD_HTTP_METHOD_GET || verb == MHD_HTTP_METHOD_HEAD) {
    page = static_cast<HttpPort::Impl*>(self)->pages(url);
  }
  MHD_Response* const response =
      MHD_create_response_from_buffer(page.body.size(), page.body.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page.content_type.c_str());
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  const MHD_Result queued = MHD_queue_response(connection, page.status, response);
  MHD_destroy_response(response);
  return queued;
}

void connection_changed(void* self, MHD_Connection* connection, void**,
                        MHD_ConnectionNotificationCode what) {
  auto& open = static_cast<HttpPort::Impl*>(self)->open;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    open.erase(connection);
  } else if (const auto* info =
                 MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)) {
    open[connection] = {info->connect_fd, Clock::now()};
  }
}

}  // namespace

void HttpPort::Impl::run() {
  while (!stopping) {
    std::array<pollfd, 2> fds = {pollfd{epoll, POLLIN, 0}, pollfd{wake, POLLIN, 0}};
    poll(fds.data(), fds.size(), static_cast<int>(std::min(kPollMs, limits.age_ms)));
    MHD_run(daemon);
    cut_the_old();
  }
}

// The library sees the end of the connection in its next round, and forgets it.
void HttpPort::Impl::cut_the_old() {
  const auto now = Clock::now();
  for (const auto& [connection, peer] : open) {
    if (now - peer.since > std::chrono::milliseconds(limits.age_ms)) shutdown(peer.fd, SHUT_RDWR);
  }
}

HttpPort::HttpPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpPort::~HttpPort() {
  impl_->stopping = true;
  const uint64_t one = 1;
  (void)!write(impl_->wake, &one, sizeof one);
  impl_->thread.join();
  MHD_stop_daemon(impl_->daemon);  // closes the listening socket
  close(impl_->wake);
}

const std::string& HttpPort::endpoint() const {
  return impl_->endpoint;
}

Result<std::unique_ptr<HttpPort>> HttpPort::open(const std::string& address, Pages pages,
                                                 HttpLimits limits) {
  TRY(const Address parsed, parse_address(address));
  TRY(const int fd, listen_on(parsed, address));
  auto impl = std::make_unique<Impl>();
  impl->pages = std::move(pages);
  impl->limits = limits;
  impl->endpoint = endpoint_of(fd);
  impl->daemon = MHD_start_daemon(
      MHD_USE_EPOLL, 0, nullptr, nullptr, answer, impl.get(), MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_CONNECTION_LIMIT, limits.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      limits.request_bytes, MHD_OPTION_CONNECTION_TIMEOUT, limits.silence_s,
      MHD_OPTION_NOTIFY_CONNECTION, connection_changed, impl.get(), MHD_OPTION_END);
  if (impl->daemon == nullptr) {
    close(fd);
    return fail(Code::kInternal, "the HTTP library does not start");
  }
  impl->epoll = MHD_get_daemon_info(impl->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  impl->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  impl->thread = std::thread([port = impl.get()] { port->run(); });
  return std::unique_ptr<HttpPort>(new HttpPort(std::move(impl)));
}

}  // namespace kiln
