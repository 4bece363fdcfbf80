#include "coordinator/redis/resp.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr size_t kMaxHeader = 16;  // of "*3" or "$16777216", without its line break
constexpr size_t kKeptBytes = 128 << 10;
constexpr std::string_view kBreak = "\r\n";

tl::unexpected<Error> malformed(const char* what) {
  return fail(Code::kInvalidArgument, std::string("Protocol error: ") + what);
}

// The number behind `mark` at the start of `text`, whose line is taken off; nothing while the line
// is not whole.
Result<std::optional<size_t>> take_header(std::string_view& text, char mark) {
  if (text.empty()) return std::nullopt;
  if (text.front() != mark) return malformed("an array of byte strings was expected");
  const size_t end = text.substr(0, kMaxHeader + kBreak.size()).find(kBreak);
  if (end == std::string_view::npos) {
    if (text.size() >= kMaxHeader + kBreak.size()) return malformed("too long a number");
    return std::nullopt;
  }
  size_t number = 0;
  if (!read_number(text.substr(1, end - 1), number)) return malformed("no number");
  text.remove_prefix(end + kBreak.size());
  return number;
}

std::string without_breaks(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return c == '\r' || c == '\n'; }, ' ');
  return line;
}

}  // namespace

Result<std::optional<std::vector<std::string>>> RespReader::next(size_t most_bytes) {
  std::string_view rest = held_;
  TRY(const std::optional<size_t> count, take_header(rest, '*'));
  if (!count) return std::nullopt;
  if (*count == 0 || *count > kMaxRespWords) return malformed("too few or too many words");
  std::vector<std::string_view> words;
  for (size_t left = most_bytes; words.size() < *count;) {
    TRY(const std::optional<size_t> size, take_header(rest, '$'));
    if (!size) return std::nullopt;
    if (*size > left) return malformed("a request that is too large");
    left -= *size;
    if (rest.size() < *size + kBreak.size()) return std::nullopt;
    if (rest.substr(*size, kBreak.size()) != kBreak) return malformed("no end of a byte string");
    words.push_back(rest.substr(0, *size));
    rest.remove_prefix(*size + kBreak.size());
  }
  std::vector<std::string> request(words.begin(), words.end());
  if (held_.capacity() > kKeptBytes)
    held_ = std::string(rest);  // gives the memory of a large request back
  else
    held_.erase(0, held_.size() - rest.size());
  return request;
}

std::string resp_ok() {
  return resp_simple("OK");
}
std::string resp_simple(std::string_view word) {
  return fmt::format("+{}\r\n", word);
}
std::string resp_error(std::string_view why) {
  return fmt::format("-ERR {}\r\n", without_breaks(why));
}
std::string resp_bytes(std::string_view bytes) {
  std::string reply = fmt::format("${}\r\n", bytes.size());
  return reply.append(bytes).append(kBreak);
}
std::string resp_nothing(RespVersion version) {
  return version == RespVersion::k3 ? "_\r\n" : "$-1\r\n";
}
std::string resp_hello(RespVersion version) {
  const bool map = version == RespVersion::k3;
  std::string reply = map ? "%4\r\n" : "*8\r\n";
  reply += resp_bytes("server") + resp_bytes("redis") + resp_bytes("version") + resp_bytes("7.0.0");
  reply += resp_bytes("proto") + fmt::format(":{}\r\n", static_cast<int>(version));
  return reply + resp_bytes("role") + resp_bytes("master");
}

}  // namespace kiln
