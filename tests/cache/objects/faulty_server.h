// FaultyServer: an HTTP server that answers as a test tells it: with errors, half a body, nothing at
// all. One thread a connection; header only.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "compiler_core/base/check.h"

namespace kiln::testing {

class FaultyServer {
 public:
  struct Request {
    int number = 0;      // from 1
    std::string head{};  // request line and headers
    std::string body{};
    std::string header(const std::string& name) const;  // in lower case, as our client sends them
  };
  struct Reply {
    std::string bytes{};  // of the wire
    enum class Then : uint8_t { kKeep, kClose, kReset, kStall } then = Then::kKeep;
  };
  using Answer = std::function<Reply(const Request&)>;

  // A whole response.
  static Reply reply(int status, std::string body, const std::string& headers = {}) {
    return {"HTTP/1.1 " + std::to_string(status) + " X\r\n" + headers +
            "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + std::move(body)};
  }
  static Reply error(int status, const std::string& code, const std::string& headers = {}) {
    return reply(status,
                 "<?xml version=\"1.0\"?>\n<Error><Code>" + code +
                     "</Code><Message>because</Message></Error>",
                 headers);
  }

  explicit FaultyServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
    CHECK(listen(listener_, 64) == 0, "listen");
    CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
    endpoint_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FaultyServer() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }

  const std::string& endpoint() const { return endpoint_; }
  int requests() const { return requests_; }

 private:
  // False: it is time to stop, or the other side has closed.
  bool readable(int fd) const {
    while (!stopping_) {
      pollfd waiting{fd, POLLIN, 0};
      if (poll(&waiting, 1, 20) > 0) return true;
    }
    return false;
  }
  void accept_all() {
    while (readable(listener_)) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) threads_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    std::string buffer;
    for (Request request; read_request(fd, buffer, request);) {
      request.number = ++requests_;
      const Reply reply = answer_(request);
      send(fd, reply.bytes.data(), reply.bytes.size(), MSG_NOSIGNAL);
      if (reply.then == Reply::Then::kKeep) continue;
      if (reply.then == Reply::Then::kStall)
        while (!stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const linger at_once{1, 0};
      if (reply.then == Reply::Then::kReset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      break;
    }
    close(fd);
  }
  bool read_more(int fd, std::string& buffer) const {
    char chunk[1 << 16];
    const ssize_t got = readable(fd) ? recv(fd, chunk, sizeof chunk, 0) : 0;
    if (got > 0) buffer.append(chunk, static_cast<size_t>(got));
    return got > 0;
  }
  bool read_request(int fd, std::string& buffer, Request& request) const {
    size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos)
      if (!read_more(fd, buffer)) return false;
    request.head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    const size_t size = std::strtoul(("0" + request.header("content-length")).c_str(), nullptr, 10);
    while (buffer.size() < size)
      if (!read_more(fd, buffer)) return false;
    request.body = buffer.substr(0, size);
    buffer.erase(0, size);
    return true;
  }

  const Answer answer_;
  int listener_ = -1;
  std::string endpoint_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> requests_{0};
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // of the acceptor
};

inline std::string FaultyServer::Request::header(const std::string& name) const {
  for (const std::string& spelling : {name, std::string("Content-Length")}) {
    if (spelling != name && name != "content-length") continue;
    const size_t at = head.find("\r\n" + spelling + ": ");
    if (at == std::string::npos) continue;
    const size_t start = at + spelling.size() + 4;
    return head.substr(start, head.find("\r\n", start) - start);
  }
  return "";
}

}  // namespace kiln::testing
