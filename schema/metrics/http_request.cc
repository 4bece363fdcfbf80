#include "schema/metrics/http_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

std::string_view reason_of(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Answer";
  }
}

// The text up to the end of the line, which is taken off `rest` with it.
std::string_view take_line(std::string_view& rest) {
  std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_method(std::string_view word) {
  return !word.empty() && word.size() <= 16 &&
         std::ranges::all_of(word, [](char c) { return (c >= 'A' && c <= 'Z') || c == '-'; });
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : found->second;
}

HttpAnswer plain_answer(unsigned status, std::string text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(text) + "\n";
  return answer;
}

std::optional<size_t> head_size(std::string_view bytes) {
  const size_t crlf = bytes.find("\r\n\r\n"), lf = bytes.find("\n\n");
  if (crlf == std::string_view::npos && lf == std::string_view::npos) return std::nullopt;
  return crlf < lf ? crlf + 4 : lf + 2;
}

Result<HttpRequest> parse_request(std::string_view head) {
  std::string_view line = take_line(head);
  const std::string_view method = take_word(line);
  const std::string_view target = take_word(line);
  if (!is_method(method) || !target.starts_with('/') || !line.starts_with("HTTP/1."))
    return fail(Code::kInvalidArgument, "this is no request of HTTP/1.1");
  HttpRequest request;
  request.method = method;
  const size_t path = std::min(target.find('?'), target.size());
  request.path = target.substr(0, path);
  request.query = target.substr(std::min(target.size(), path + 1));
  while (!head.empty()) {
    const std::string_view field = take_line(head);
    if (field.empty()) break;
    const size_t colon = field.find(':');
    if (colon == 0 || colon == std::string_view::npos || field.front() == ' ')
      return fail(Code::kInvalidArgument, "a line of the request's head is no header");
    request.headers.emplace_back(lower_case(field.substr(0, colon)),
                                 trimmed(field.substr(colon + 1), " \t"));
  }
  return request;
}

Result<size_t> body_size(const HttpRequest& request) {
  if (!request.header("transfer-encoding").empty())
    return fail(Code::kInvalidArgument, "a body is only taken whole, with its Content-Length");
  const std::string_view length = request.header("content-length");
  if (length.size() > 9 || length.find_first_not_of("0123456789") != std::string_view::npos)
    return fail(Code::kInvalidArgument, "the Content-Length is no number of bytes");
  return length.empty() ? 0 : static_cast<size_t>(std::stoul(std::string(length)));
}

std::string format_answer(const HttpAnswer& answer, bool body_wanted) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: {}\r\n",
                                 answer.status, reason_of(answer.status), answer.content_type);
  if (!answer.stream) text += fmt::format("Content-Length: {}\r\n", answer.body.size());
  for (const auto& [name, value] : answer.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  if (body_wanted) text += answer.body;
  return text;
}

}  // namespace kiln
