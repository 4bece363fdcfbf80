// HttpPort answers GET requests for a few small pages, for scrapers and orchestrators. One thread
// of its own serves all connections. Slow, endless or numerous requests are bounded (HttpLimits);
// connections beyond the limit wait in the kernel's queue. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpLimits {
  unsigned connections = 32;
  size_t request_bytes = 8 << 10;  // memory per connection, the library's own included
  unsigned silence_s = 5;          // a silent connection is closed
  int64_t age_ms = 10'000;         // any connection is closed at this age
};

class HttpPort {
 public:
  // Called on the port's thread, one request at a time; should answer within milliseconds.
  using Pages = std::function<HttpAnswer(std::string_view path)>;

  // `address`: "127.0.0.1:9557", "[::1]:9557", "0.0.0.0:9557"; port 0 picks one.
  // kInvalidArgument when it is no address; kUnavailable when the port is taken.
  static Result<std::unique_ptr<HttpPort>> open(const std::string& address, Pages pages,
                                                HttpLimits limits = {});
  ~HttpPort();  // ends connections

  const std::string& endpoint() const;  // "http://127.0.0.1:9557", with the port that was picked

  struct Impl;

 private:
  explicit HttpPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
