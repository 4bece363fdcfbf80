// HttpClient: requests to HTTP servers, many at once on one thread of its own (libcurl's multi
// interface), over connections that are kept and bounded. It takes nothing on trust: no redirect is
// followed, no proxy, cookie or user's file is used, and bodies are bounded. Thread-safe.
// Callbacks run on its thread, which they must not hold up.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cache/objects/object_store.h"

namespace kiln {

struct OutgoingRequest {
  std::string method = "GET";
  std::string url{};  // http:// or https://, encoded
  std::map<std::string, std::string> headers{};
  std::shared_ptr<const std::string> body{};  // null: none
  int64_t max_body_bytes = 1 << 20;           // of the response, where its status is 200
  std::chrono::milliseconds timeout{60'000};  // of it all, once a connection is free for it
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};  // whole where the status is 200, else at most its first 64 KiB

  std::string header(const std::string& name) const;  // "": there is none
};

class HttpClient {
 public:
  struct Options {
    int connections = 16;
    std::chrono::milliseconds connect_timeout{3000};
    // Rounded up to seconds; libcurl averages, and may take five seconds more.
    std::chrono::milliseconds stall_timeout{10'000};
    std::string ca_file{};  // empty: the system's
  };
  explicit HttpClient(const Options& options);
  // Answers what is open, and what callbacks still ask, with kUnavailable, then returns.
  ~HttpClient();

  // Hears a response of any status, whole, or why there is none: kUnavailable (nobody answers, the
  // connection broke, the body ended early or stood still); kUnsupported (a body above the bound);
  // kDeadlineExceeded (the timeout). A certificate that is not good: kPermissionDenied.
  void ask(OutgoingRequest request, Then<HttpResponse> done);
  // Hears ok after `delay`.
  void after(std::chrono::milliseconds delay, Then<void> done);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
