// Ports of this machine, for tests and benches that speak TCP themselves. Header only.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

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

inline bool is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  const bool bound =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return bound;
}

// The least port that the kernel gives to who asks for any, or connects.
inline int first_port_of_the_kernel() {
  int first = 0;
  std::FILE* const file = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
  if (file == nullptr || std::fscanf(file, "%d", &first) != 1) first = 32'768;
  if (file != nullptr) std::fclose(file);
  return first;
}

// A port for a program that is told its port, and may start there again: nobody else gets it while this
// process lives. The kernel gives ports from higher up, and tests see each other's locks (also those of
// tests/ops/ports.py).
inline int free_port() {
  constexpr int kFirst = 10'000;
  thread_local std::mt19937 random{std::random_device{}()};
  const int kernels = first_port_of_the_kernel();
  const int end = kernels > kFirst + 1'000 ? kernels : 65'536;  // it leaves none: from all
  const std::string locks = "/tmp/kiln-test-ports";
  if (::mkdir(locks.c_str(), 0777) == 0) ::chmod(locks.c_str(), 01777);
  for (int tries = 0; tries < 10'000; ++tries) {
    const int port = std::uniform_int_distribution(kFirst, end - 1)(random);
    const int lock =
        ::open((locks + "/" + std::to_string(port)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) continue;
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && is_free(port)) return port;  // it stays locked
    ::close(lock);
  }
  CHECK(false, "there is a free port");
  return 0;
}

// A TCP endpoint of the service protocol at a free_port().
inline std::string free_endpoint() {
  return "tcp://127.0.0.1:" + std::to_string(free_port());
}

// As connect(2).
inline int connect_to_loopback(int socket, int port) {
  const sockaddr_in address = loopback(port);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

}  // namespace kiln
