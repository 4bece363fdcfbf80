// Endpoint: "tcp://HOST:PORT" taken apart. HOST is a name, an IPv4 address, or an IPv6 one in
// brackets; `*` stands for every interface of this machine.
#pragma once

#include <string>

#include "compiler_core/base/result.h"

namespace kiln {

struct Endpoint {
  std::string address;  // as ZeroMQ takes it
  bool loopback = false;
  bool ipv6 = false;
};

Result<Endpoint> parse_endpoint(const std::string& endpoint);  // kInvalidArgument

}  // namespace kiln
