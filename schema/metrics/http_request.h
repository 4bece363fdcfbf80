// HttpRequest and HttpAnswer: what HTTP/1.x says in a request, and what an answer looks like
// (RFC 9112). Plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

struct HttpRequest {
  std::string method;                                          // "GET", "HEAD" or "POST"
  std::string path;                                            // as it was sent, without its query
  std::string query;                                           // what follows the first '?'
  std::vector<std::pair<std::string, std::string>> headers{};  // names in lower case
  std::string body{};
  std::string peer{};  // its address, as numbers

  // Empty: there is no such header. `name` in lower case.
  std::string_view header(std::string_view name) const;
  bool is_get() const { return method == "GET" || method == "HEAD"; }
};

struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
  bool stream = false;  // of server-sent events: the connection stays open (HttpPort::publish)
};

HttpAnswer plain_answer(unsigned status, std::string text);

// The bytes up to and with the empty line that ends the head; nothing while it is not whole.
std::optional<size_t> head_size(std::string_view bytes);
// The head of a request. kInvalidArgument when it is none.
Result<HttpRequest> parse_request(std::string_view head);
// The bytes of its body. kInvalidArgument: it does not say, in a way that is understood here.
Result<size_t> body_size(const HttpRequest& request);
// Status line, headers and, if it is wanted, the body. The connection ends with it, unless it is a
// stream.
std::string format_answer(const HttpAnswer& answer, bool body_wanted);

}  // namespace kiln
