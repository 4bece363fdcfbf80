#include "cache/objects/link_reader.h"

#include <fmt/core.h>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace kiln {
namespace {

constexpr int kStatusOk = 200;

Result<std::string> body_of(Result<HttpResponse> response) {
  if (!response) return fail(std::move(response).error());
  if (response->status == kStatusOk) return std::move(response->body);
  return fail(Code::kUnavailable, fmt::format("its place answers {}", response->status));
}

}  // namespace

LinkReader::LinkReader(const std::string& ca_file, int64_t most_bytes)
    : most_bytes_(most_bytes), client_({.ca_file = ca_file}) {}

std::vector<Result<std::string>> LinkReader::read(const std::vector<std::string>& urls,
                                                  std::chrono::milliseconds timeout) {
  std::vector<Result<std::string>> bodies(urls.size(),
                                          fail(Code::kInternal, "the client answers each request"));
  std::mutex mu;
  std::condition_variable changed;
  size_t open = urls.size();  // guarded by mu
  for (size_t i = 0; i < urls.size(); ++i)
    client_.ask({.url = urls[i], .max_body_bytes = most_bytes_, .timeout = timeout},
                [&, i](Result<HttpResponse> response) {
                  const std::scoped_lock lock(mu);
                  bodies[i] = body_of(std::move(response));
                  if (--open == 0) changed.notify_one();
                });
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return open == 0; });
  return bodies;
}

}  // namespace kiln
