// Ports of this machine, for tests and benches that speak TCP themselves. Header only.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "compiler_core/base/check.h"

namespace kiln {

// 127.0.0.1:PORT; 0: any.
inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Gives `socket` a free port; which.
inline int bind_to_any(int socket) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0, "there is a free port");
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Was free a moment ago: for programs that are told their port.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int port = bind_to_any(socket);
  ::close(socket);
  return port;
}

// As connect(2).
inline int connect_to_loopback(int socket, int port) {
  const sockaddr_in address = loopback(port);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

}  // namespace kiln
