#include "compiler_core/base/text.h"
#include "schema/zmq/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace kiln {
namespace {

bool is_loopback(std::string_view host) {
  return host == "[::1]" || (host.starts_with("127.") &&
                             host.find_first_not_of("0123456789.") == std::string_view::npos);
}

bool is_host(std::string_view host) {
  if (host == "*") return true;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string_view also = bracketed ? ":[]%." : ".-_";
  return !host.empty() && std::ranges::all_of(host, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || also.find(c) != also.npos;
  });
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  unsigned port = 0;
  if (endpoint.starts_with(kTcp) && colon != std::string::npos && colon > kTcp.size()) {
    std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size());
    if (host == "localhost") host = "127.0.0.1";
    if (read_number(endpoint.substr(colon + 1), port) && port <= 65535 && is_host(host)) {
      return Endpoint{fmt::format("tcp://{}:{}", host, port), is_loopback(host),
                      host.front() == '['};
    }
  }
  return fail(Code::kInvalidArgument,
              fmt::format("'{}' is not an endpoint; write tcp://HOST:PORT, such as "
                          "tcp://127.0.0.1:7557",
                          endpoint));
}

}  // namespace kiln
