// Signatures of requests to S3 services: AWS Signature Version 4, in a header or in the query of a
// link (docs.aws.amazon.com: "Signature Calculations for the Authorization Header", "Authenticating
// Requests: Using Query Parameters"). Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cache/objects/object_store.h"

namespace kiln {

// A request before it is signed. Nothing in it is percent-encoded yet.
struct S3Request {
  std::string method = "GET";
  std::string host{};      // with the port, unless it is the scheme's own
  std::string path = "/";  // begins with a slash
  std::map<std::string, std::string> query{};
  std::map<std::string, std::string> headers{};  // names in lower case; all are signed
};

// Everything but letters, digits and - . _ ~ as %XX; slashes of a path stay.
std::string percent_encoded(std::string_view text, bool keep_slashes);
// "/path?a=1&b=2", encoded: what is signed, and what goes over the wire.
std::string target_of(const S3Request& request);

// The headers to send: those of the request and `authorization`, `x-amz-date`,
// `x-amz-content-sha256` and, with temporary credentials, `x-amz-security-token`.
std::map<std::string, std::string> signed_headers(const S3Request& request,
                                                  const S3Credentials& credentials,
                                                  const std::string& region, int64_t unix_s,
                                                  const std::string& payload_sha256_hex);

// The target of a link that is good for `seconds` from `unix_s`.
std::string signed_target(S3Request request, const S3Credentials& credentials,
                          const std::string& region, int64_t unix_s, int64_t seconds);

}  // namespace kiln
