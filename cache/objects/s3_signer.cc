#include "cache/objects/s3_signer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "compiler_core/base/primitives.h"
#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";
constexpr char kUnsigned[] = "UNSIGNED-PAYLOAD";  // of a link, whose sender is not known yet

std::string sha256_hex(std::string_view text) {
  return to_hex(sha256(text));
}

std::string time_text(int64_t unix_s) {
  return fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

// The scope of a signature: a day, a region, this service.
std::string scope_of(const std::string& time, const std::string& region) {
  return time.substr(0, 8) + "/" + region + "/s3/aws4_request";
}

std::string names_of(const std::map<std::string, std::string>& headers) {
  std::string names;
  for (const auto& [name, value] : headers) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string query_text(const std::map<std::string, std::string>& query) {
  std::map<std::string, std::string> encoded;  // sorted as encoded
  for (const auto& [name, value] : query)
    encoded[percent_encoded(name, false)] = percent_encoded(value, false);
  std::string text;
  for (const auto& [name, value] : encoded)
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

std::string signature_of(const S3Request& request, const S3Credentials& credentials,
                         const std::string& region, const std::string& time,
                         const std::string& payload) {
  std::string canonical = request.method + "\n" + percent_encoded(request.path, true) + "\n" +
                          query_text(request.query) + "\n";
  for (const auto& [name, value] : request.headers)
    canonical += fmt::format("{}:{}\n", name, value);
  canonical += "\n" + names_of(request.headers) + "\n" + payload;
  const std::string text = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope_of(time, region),
                                       sha256_hex(canonical));
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string& part :
       {time.substr(0, 8), region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(key, part);
  return to_hex(hmac_sha256(key, text));
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain)
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return encoded;
}

std::string target_of(const S3Request& request) {
  const std::string query = query_text(request.query);
  return percent_encoded(request.path, true) + (query.empty() ? "" : "?" + query);
}

std::map<std::string, std::string> signed_headers(const S3Request& request,
                                                  const S3Credentials& credentials,
                                                  const std::string& region, int64_t unix_s,
                                                  const std::string& payload_sha256_hex) {
  const std::string time = time_text(unix_s);
  S3Request whole = request;
  whole.headers["host"] = request.host;
  whole.headers["x-amz-date"] = time;
  whole.headers["x-amz-content-sha256"] = payload_sha256_hex;
  if (!credentials.session_token.empty())
    whole.headers["x-amz-security-token"] = credentials.session_token;
  const std::string signature = signature_of(whole, credentials, region, time, payload_sha256_hex);
  std::map<std::string, std::string> headers = whole.headers;
  headers["authorization"] = fmt::format("{} Credential={}/{},SignedHeaders={},Signature={}",
                                         kAlgorithm, credentials.access_key, scope_of(time, region),
                                         names_of(whole.headers), signature);
  return headers;
}

std::string signed_target(S3Request request, const S3Credentials& credentials,
                          const std::string& region, int64_t unix_s, int64_t seconds) {
  const std::string time = time_text(unix_s);
  request.headers["host"] = request.host;
  request.query["X-Amz-Algorithm"] = kAlgorithm;
  request.query["X-Amz-Credential"] = credentials.access_key + "/" + scope_of(time, region);
  request.query["X-Amz-Date"] = time;
  request.query["X-Amz-Expires"] = std::to_string(seconds);
  request.query["X-Amz-SignedHeaders"] = names_of(request.headers);
  if (!credentials.session_token.empty())
    request.query["X-Amz-Security-Token"] = credentials.session_token;
  const std::string signature = signature_of(request, credentials, region, time, kUnsigned);
  return target_of(request) + "&X-Amz-Signature=" + signature;
}

}  // namespace kiln
