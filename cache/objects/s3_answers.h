// The answers of S3 services: lists of objects and errors, in XML, read as far as Kiln needs them.
// Pure functions; any bytes may come.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/objects/http_client.h"

namespace kiln {

// The text of the first <tag> in `xml`, with its references resolved; none: there is no such, or it
// is not closed.
std::optional<std::string> xml_text(std::string_view xml, std::string_view tag);

struct S3Failure {
  Error error;              // a sentence that says what to do
  bool may_pass = false;    // trying again may help
  bool is_absence = false;  // the service says that there is no such object
};
// The failure that a response without success tells of. Its sentence names the bucket and the access
// key, which is no secret. Only an S3 error that says NoSuchKey is an absence: a 404 of a
// proxy, or of another server under this address, is none.
S3Failure read_failure(const HttpResponse& response, const std::string& bucket,
                       const std::string& access_key, int64_t now_unix_s);

struct S3Listing {
  std::vector<ObjectInfo> objects;  // names with their prefix, in the service's order
  bool is_truncated = false;        // there are more
};
// kUnavailable when it is no listing.
Result<S3Listing> read_listing(std::string_view xml);

}  // namespace kiln
