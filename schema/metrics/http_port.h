// HttpPort answers HTTP requests for small pages: scrapers, orchestrators, and people who look at
// the coordinator's page. One thread of its own serves all connections; whoever takes long to answer
// does it on another thread (Handler). Slow, endless or numerous requests are bounded (HttpLimits);
// where there is no place left, the newest connection takes that of the oldest, so that a probe
// with its request at hand is answered however many others are slow. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "schema/metrics/http_request.h"

namespace kiln {

struct HttpLimits {
  size_t connections = 64;         // at once
  size_t connections_of_one = 32;  // of one address, at once
  size_t head_bytes = 8 << 10;     // of a request; a longer one is answered 431
  size_t body_bytes = 8 << 10;     // the same: 413
  int64_t head_ms = 1'000;         // a request that is not whole by then is answered 408
  int64_t age_ms = 10'000;         // any connection but a stream is closed at this age
  size_t streams = 16;             // at once; a further one is answered 503
  int64_t stream_age_ms = 600'000;
};

class HttpPort {
 public:
  // Called on the port's thread, one request at a time; should answer within milliseconds. Only
  // GET and HEAD get here.
  using Pages = std::function<HttpAnswer(std::string_view path)>;
  // Also called on that thread, with POST too. It calls `reply` once, at any time and on any thread;
  // an answer that comes when the connection or the port is gone goes nowhere.
  using Reply = std::function<void(HttpAnswer)>;
  using Handler = std::function<void(HttpRequest request, Reply reply)>;

  // `address`: "127.0.0.1:9557", "[::1]:9557", "0.0.0.0:9557"; port 0 picks one.
  // kInvalidArgument when it is no address; kUnavailable when the port is taken.
  static Result<std::unique_ptr<HttpPort>> open(const std::string& address, Pages pages,
                                                HttpLimits limits = {});
  static Result<std::unique_ptr<HttpPort>> serve(const std::string& address, Handler handler,
                                                 HttpLimits limits = {});
  ~HttpPort();  // ends connections

  const std::string& endpoint() const;  // "http://127.0.0.1:9557", with the port that was picked
  // Sends `text` to every stream that has taken all before it; the others do without.
  void publish(std::string text);
  size_t streams() const;  // open ones

  struct Impl;

 private:
  explicit HttpPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
