// HttpPeer: a raw socket to an HTTP port, which may say anything; http_get() asks properly.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"

namespace kiln {

class HttpPeer {
 public:
  explicit HttpPeer(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    CHECK(connect_to_loopback(fd_, port) == 0, "the port is open");
    const timeval limit{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~HttpPeer() { close(fd_); }
  HttpPeer(const HttpPeer&) = delete;

  bool say(std::string_view bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  // Everything until the port ends the connection, or until it ends with `last`.
  std::string hear(std::string_view last = {}) const {
    std::string text;
    std::array<char, 4096> chunk;
    for (ssize_t n = 0; (n = recv(fd_, chunk.data(), chunk.size(), 0)) > 0;) {
      text.append(chunk.data(), static_cast<size_t>(n));
      if (!last.empty() && text.ends_with(last)) break;
    }
    return text;
  }

 private:
  const int fd_;
};

// Status line, headers and body.
inline std::string http_get(const std::string& endpoint, const std::string& path,
                            const std::string& host = "x") {
  const HttpPeer peer(endpoint);
  peer.say("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  return peer.hear();
}

}  // namespace kiln
