// RawPeer: a TCP connection that speaks to a ZeroMQ socket byte by byte, to send what no
// well-behaved peer would. Header only, for tests; one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/support/loopback.h"

namespace kiln {

class RawPeer {
 public:
  // `endpoint` is "tcp://127.0.0.1:PORT".
  explicit RawPeer(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    EXPECT_EQ(connect_to_loopback(fd_, port), 0);
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { close(fd_); }

  // False once the other side has closed.
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // ZMTP 3.0 greeting (NULL mechanism) and READY of a DEALER, RFC 23. Waits for the other side's:
  // frames that come before it is done count as a broken handshake. `properties` are added to
  // READY.
  void shake_hands(const std::string& properties = {}) {
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
    greeting.resize(64, '\0');
    write(greeting);
    const std::string ready =
        std::string("\x05READY\x0bSocket-Type\0\0\0\x06", 22) + "DEALER" + properties;
    write(std::string("\x04", 1) + static_cast<char>(ready.size()) + ready);
    const std::string theirs = read(64 + 2);  // greeting, then flags and size of READY
    if (theirs.size() == 66) read(static_cast<uint8_t>(theirs[65]));
  }

  // One ZMTP frame; `claimed` is the size in its header.
  bool write_frame(std::string_view body, bool more, uint64_t claimed) {
    std::string header(1, static_cast<char>(more ? 3 : 2));  // long frame
    for (int shift = 56; shift >= 0; shift -= 8) {
      header += static_cast<char>(claimed >> shift & 0xff);
    }
    return write(header) && write(body);
  }
  bool write_frame(std::string_view body, bool more = false) {
    return write_frame(body, more, body.size());
  }

  // `size` bytes; fewer when the other side closes or is silent for a minute.
  std::string read(size_t size) {
    std::string bytes(size, '\0');
    size_t have = 0;
    while (have < size) {
      const ssize_t got = recv(fd_, bytes.data() + have, size - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

  // The body of the next frame that is not empty and no command.
  std::string read_frame() {
    for (;;) {
      const std::string flags = read(1);
      if (flags.empty()) return {};
      uint64_t size = 0;
      for (const char c : read((flags[0] & 2) != 0 ? 8 : 1)) {
        size = size << 8 | static_cast<uint8_t>(c);
      }
      std::string body = read(size);
      if ((flags[0] & 4) == 0 && !body.empty()) return body;
    }
  }

  // Waits until the other side closes; false after a minute of silence.
  bool closed_by_peer() {
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }

 private:
  const int fd_;
};

}  // namespace kiln
