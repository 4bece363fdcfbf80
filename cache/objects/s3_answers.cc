#include "cache/objects/s3_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>

namespace kiln {
namespace {

constexpr size_t kQuotedBytes = 200;  // of a message that the service wrote

// "&amp;" and its like; anything else stays as it is.
std::string resolved(std::string_view text) {
  constexpr std::pair<std::string_view, char> kReferences[] = {
      {"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},  {"&quot;", '"'},
      {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};
  std::string plain;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [reference, c] : kReferences)
      if (text.front() == '&' && text.starts_with(reference)) {
        plain += c;
        text.remove_prefix(reference.size());
        found = true;
        break;
      }
    if (found) continue;
    plain += text.front();
    text.remove_prefix(1);
  }
  return plain;
}

// The text between <tag> and </tag>, searched from `from` on, which moves past it.
std::optional<std::string_view> element(std::string_view xml, std::string_view tag, size_t& from) {
  const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
  const size_t start = xml.find(open, from);
  if (start == std::string_view::npos) return std::nullopt;
  const size_t end = xml.find(close, start + open.size());
  if (end == std::string_view::npos) return std::nullopt;
  from = end + close.size();
  return xml.substr(start + open.size(), end - start - open.size());
}

// One line of printable ASCII: it goes to a terminal.
std::string printable(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, kQuotedBytes)) line += c >= ' ' && c <= '~' ? c : ' ';
  return line;
}

int64_t number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "2026-11-23T17:38:00.000Z"; 0 when it is none.
int64_t unix_ms(const std::string& text) {
  std::tm time = {};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr) return 0;
  const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0;
  return int64_t{::timegm(&time)} * 1000 + static_cast<int64_t>(fraction * 1000);
}

// How far our clock is from the service's, as its Date header has it.
std::string skew_text(const HttpResponse& response, int64_t now_unix_s) {
  std::tm time = {};
  if (::strptime(response.header("date").c_str(), "%a, %d %b %Y %H:%M:%S", &time) == nullptr)
    return "";
  return fmt::format(" (they differ by {} s)", std::abs(now_unix_s - ::timegm(&time)));
}

bool is_one_of(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::ranges::find(codes, code) != codes.end();
}

}  // namespace

std::optional<std::string> xml_text(std::string_view xml, std::string_view tag) {
  size_t from = 0;
  const auto text = element(xml, tag, from);
  if (!text) return std::nullopt;
  return resolved(*text);
}

S3Failure read_failure(const HttpResponse& response, const std::string& bucket,
                       const std::string& access_key, int64_t now_unix_s) {
  const bool is_s3 = response.body.find("<Error>") != std::string::npos ||
                     response.body.find("<Error ") != std::string::npos;
  const std::string code = is_s3 ? xml_text(response.body, "Code").value_or("") : "";
  const std::string message =
      printable(is_s3 ? xml_text(response.body, "Message").value_or("") : "");
  const int status = response.status;
  const auto says = [](Code kind, std::string text) {
    return S3Failure{{kind, std::move(text), 0}};
  };
  if (code == "NoSuchKey" && status == 404)
    return {{Code::kNotFound, "there is no such object", 0}, false, true};
  if (code == "NoSuchBucket")
    return says(
        Code::kInvalidArgument,
        fmt::format("there is no bucket '{}' at this service: make it, or name another", bucket));
  if (code == "InvalidAccessKeyId")
    return says(
        Code::kPermissionDenied,
        fmt::format("the service does not know the access key {}: look at AWS_ACCESS_KEY_ID, "
                    "or at the file of credentials",
                    access_key));
  if (code == "SignatureDoesNotMatch")
    return says(Code::kPermissionDenied,
                fmt::format("the secret key is not that of the access key {}, or the region is "
                            "another: look at AWS_SECRET_ACCESS_KEY and AWS_REGION",
                            access_key));
  if (is_one_of(code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}))
    return says(
        Code::kPermissionDenied,
        fmt::format("the temporary credentials of {} have ended: get new ones", access_key));
  if (is_one_of(code, {"RequestTimeTooSkewed", "RequestExpired"}))
    return says(Code::kPermissionDenied, "this machine's clock and the service's disagree" +
                                             skew_text(response, now_unix_s) +
                                             ": set the clock right");
  if (is_one_of(code, {"AccessDenied", "AllAccessDisabled", "AccountProblem"}) ||
      (code.empty() && (status == 401 || status == 403)))
    return says(
        Code::kPermissionDenied,
        fmt::format("the access key {} may not do this in bucket '{}': it needs GetObject, "
                    "PutObject, DeleteObject and ListBucket{}{}",
                    access_key, bucket, message.empty() ? "" : "; the service says: ", message));
  const std::string region = response.header("x-amz-bucket-region");
  if (status / 100 == 3 || code == "AuthorizationHeaderMalformed")
    return says(
        Code::kInvalidArgument,
        region.empty()
            ? fmt::format("bucket '{}' is answered for elsewhere (status {}): is the endpoint "
                          "or the region wrong?",
                          bucket, status)
            : fmt::format("bucket '{}' is in region {}: set AWS_REGION to it", bucket,
                          printable(region)));
  S3Failure failure;
  // These say that the request was altered on its way, or came too slowly; nothing was stored.
  failure.may_pass = status >= 500 || status == 429 || status == 408 ||
                     is_one_of(code, {"RequestTimeout", "SlowDown", "InternalError", "BadDigest",
                                      "XAmzContentSHA256Mismatch", "IncompleteBody"});
  failure.error.code = Code::kUnavailable;
  failure.error.message =
      code.empty()
          ? fmt::format("the server answers {}, not as S3 does: is the endpoint right?", status)
          : fmt::format("the service answers {} {}{}{}", status, printable(code),
                        message.empty() ? "" : ": ", message);
  return failure;
}

Result<S3Listing> read_listing(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos)
    return fail(
        Code::kUnavailable,
        "the server answers a list with something else, not as S3 does: is the endpoint right?");
  S3Listing listing;
  listing.is_truncated = xml_text(xml, "IsTruncated").value_or("") == "true";
  for (size_t from = 0;;) {
    const auto contents = element(xml, "Contents", from);
    if (!contents) break;
    const auto name = xml_text(*contents, "Key");
    if (!name) return fail(Code::kUnavailable, "the service lists an object without a name");
    listing.objects.push_back({*name, number(xml_text(*contents, "Size").value_or("0")),
                               unix_ms(xml_text(*contents, "LastModified").value_or(""))});
  }
  return listing;
}

}  // namespace kiln
