#include "cache/objects/s3_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "compiler_core/base/primitives.h"
#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kDigestHeader[] = "x-amz-meta-kiln-sha256";
constexpr milliseconds kFirstPause{50}, kLongestPause{5000};
constexpr int64_t kMaxListBytes =
    8 << 20;                            // a thousand names of a kilobyte, with what surrounds them
constexpr int64_t kRetryAfterMs = 200;  // when too many calls are open

bool is_bucket_name(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

// Up to twice as long as the last time, at random: those that failed together come apart.
milliseconds pause_after(int tries) {
  thread_local std::minstd_rand random(std::random_device{}());
  const auto longest = std::min(kLongestPause, kFirstPause * (1 << std::min(tries, 10)));
  return milliseconds(
      std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random));
}

S3Failure passing(std::string why) {
  S3Failure failure{{Code::kUnavailable, std::move(why), 0}};
  failure.may_pass = true;
  return failure;
}

// The fault of an object that came with status 200; one without a message is none.
S3Failure judge_object(const HttpResponse& response) {
  const std::string length = response.header("content-length");
  if (length.empty() && response.header("transfer-encoding").empty())
    return passing("the server does not say how long the object is, so its end cannot be told");
  const std::string digest = response.header(kDigestHeader);
  if (digest.empty() || digest == to_hex(sha256(response.body))) return {};
  S3Failure altered = passing("the object is not what was put: its SHA-256 is another");
  altered.error.code = Code::kCorruption;
  return altered;
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> S3Objects::open(const std::string& place, S3Options options) {
  const size_t slash = std::min(place.find('/'), place.size());
  const std::string bucket = place.substr(0, slash);
  std::string prefix = place.substr(std::min(slash + 1, place.size()));
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!is_bucket_name(bucket))
    return fail(Code::kInvalidArgument, "'" + bucket + "' is no bucket's name: s3://BUCKET/PREFIX");
  if (!prefix.empty()) {
    if (const Status good = check_object_name(prefix); !good)
      return fail(good.error().within("the prefix"));
    prefix += '/';
  }
  if (!options.credentials)
    return fail(Code::kInvalidArgument,
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  const std::string& endpoint = options.endpoint;
  const bool is_url = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  const size_t host = endpoint.find("://") + 3;
  if (!endpoint.empty() && (!is_url || host >= endpoint.size() ||
                            endpoint.find_first_of("/?#@ ", host) < endpoint.size() - 1))
    return fail(Code::kInvalidArgument,
                "'" + endpoint + "' is no endpoint: https://HOST or https://HOST:PORT");
  if (options.region.empty()) options.region = "us-east-1";
  return std::unique_ptr<ObjectStore>(new S3Objects(bucket, prefix, std::move(options)));
}

S3Objects::S3Objects(std::string bucket, std::string prefix, S3Options options)
    : bucket_(std::move(bucket)),
      prefix_(std::move(prefix)),
      options_(std::move(options)),
      client_({options_.connections, options_.connect_timeout, options_.stall_timeout,
               options_.ca_file}) {
  std::string endpoint = options_.endpoint;
  if (endpoint.empty()) endpoint = fmt::format("https://s3.{}.amazonaws.com", options_.region);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const size_t host = endpoint.find("://") + 3;
  scheme_ = endpoint.substr(0, host);
  host_ = endpoint.substr(host);
  // A certificate for *.s3.amazonaws.com is not good for a bucket's name with dots.
  const bool in_path = options_.path_style.value_or(!options_.endpoint.empty() ||
                                                    bucket_.find('.') != std::string::npos);
  if (in_path)
    root_ = "/" + bucket_;
  else
    host_ = bucket_ + "." + host_;
}

S3Request S3Objects::request(const char* method, const std::string& name) const {
  S3Request made;
  made.method = method;
  made.host = host_;
  made.path = root_ + "/" + prefix_ + name;
  return made;
}

void S3Objects::start(Call call) {
  if (++open_ > options_.max_waiting) {
    --open_;
    return call.done(
        fail({Code::kOverloaded,
              fmt::format("{} calls of {} are open already", options_.max_waiting, describe()),
              kRetryAfterMs}));
  }
  call.deadline = Clock::now() + options_.deadline;
  send(std::make_shared<Call>(std::move(call)));
}

// Signed anew each time: a signature is good for minutes, and so may the credentials be.
void S3Objects::send(const std::shared_ptr<Call>& call) {
  const auto credentials = options_.credentials();
  if (!credentials) return finish(call, fail(credentials.error().within("credentials of S3")));
  ++call->tries;
  call->access_key = credentials->access_key;
  OutgoingRequest request;
  request.method = call->request.method;
  request.url = scheme_ + host_ + target_of(call->request);
  request.body = call->body;
  request.max_body_bytes = call->max_body_bytes;
  request.timeout = std::chrono::ceil<milliseconds>(call->deadline - Clock::now());
  const std::string payload = to_hex(sha256(call->body ? std::string_view(*call->body) : ""));
  request.headers =
      signed_headers(call->request, *credentials, options_.region, std::time(nullptr), payload);
  client_.ask(std::move(request),
              [this, call](Result<HttpResponse> response) { hear(call, std::move(response)); });
}

void S3Objects::hear(const std::shared_ptr<Call>& call, Result<HttpResponse> response) {
  if (!response) {
    const Code code = response.error().code;
    if (code == Code::kUnavailable || code == Code::kDeadlineExceeded)
      return send_later(call, {Code::kUnavailable, response.error().message, 0}, "");
    return finish(call, std::move(response));
  }
  const bool success =
      response->status == 200 || (response->status == 204 && call->request.method != "GET");
  S3Failure failure = success
                          ? call->judge(*response)
                          : read_failure(*response, bucket_, call->access_key, std::time(nullptr));
  if (success && failure.error.message.empty()) return finish(call, std::move(response));
  if (!failure.may_pass) return finish(call, fail(std::move(failure.error)));
  send_later(call, std::move(failure.error), response->header("retry-after"));
}

void S3Objects::send_later(const std::shared_ptr<Call>& call, Error why,
                           const std::string& retry_after) {
  milliseconds pause = pause_after(call->tries);
  if (!retry_after.empty() && retry_after.size() < 4 &&
      std::ranges::all_of(retry_after, [](char c) { return c >= '0' && c <= '9'; }))
    pause = std::max(pause, milliseconds(1000 * std::stoi(retry_after)));
  // Altered twice is altered where it lies; nothing is gained by reading it for a minute.
  const bool hopeless = why.code == Code::kCorruption && call->tries >= 2;
  if (hopeless || Clock::now() + pause >= call->deadline) {
    why.message += fmt::format(" (tried {} times)", call->tries);
    return finish(call, fail(std::move(why)));
  }
  client_.after(pause, [this, call](Status due) {
    if (!due) return finish(call, fail(due.error()));
    send(call);
  });
}

void S3Objects::finish(const std::shared_ptr<Call>& call, Result<HttpResponse> result) {
  --open_;
  if (!result) return call->done(fail(result.error().within(describe() + ": " + call->what)));
  call->done(std::move(result));
}

void S3Objects::put(std::string name, std::string bytes, Then<void> done) {
  if (Status good = check_object_name(name); !good) return done(std::move(good));
  if (static_cast<int64_t>(bytes.size()) > options_.max_object_bytes)
    return done(
        fail(Code::kInvalidArgument, fmt::format("{} has {} bytes, and an object at most {}", name,
                                                 bytes.size(), options_.max_object_bytes)));
  Call call{request("PUT", name)};
  call.what = "put " + name;
  call.request.headers[kDigestHeader] = to_hex(sha256(bytes));
  call.body = std::make_shared<const std::string>(std::move(bytes));
  call.max_body_bytes = kMaxListBytes;
  call.judge = [](HttpResponse&) { return S3Failure{}; };
  call.done = [done = std::move(done)](Result<HttpResponse> response) {
    done(response ? Status() : fail(std::move(response).error()));
  };
  start(std::move(call));
}

void S3Objects::get(std::string name, Then<std::string> done) {
  if (Status good = check_object_name(name); !good) return done(fail(std::move(good).error()));
  Call call{request("GET", name)};
  call.what = "get " + name;
  call.max_body_bytes = options_.max_object_bytes;
  call.judge = [](HttpResponse& response) { return judge_object(response); };
  call.done = [done = std::move(done)](Result<HttpResponse> response) {
    if (!response) return done(fail(std::move(response).error()));
    done(std::move(response->body));
  };
  start(std::move(call));
}

void S3Objects::remove(std::string name, Then<void> done) {
  if (Status good = check_object_name(name); !good) return done(std::move(good));
  Call call{request("DELETE", name)};
  call.what = "remove " + name;
  call.max_body_bytes = kMaxListBytes;
  call.judge = [](HttpResponse&) { return S3Failure{}; };
  call.done = [done = std::move(done)](Result<HttpResponse> response) {
    const bool gone = response || response.error().code == Code::kNotFound;
    done(gone ? Status() : fail(std::move(response).error()));
  };
  start(std::move(call));
}

void S3Objects::list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) {
  list_more(after, static_cast<size_t>(std::clamp(limit, 1, kMaxListed)), {}, std::move(done));
}

// Objects that others put there, under names that are none of ours, are passed over.
void S3Objects::list_more(const std::string& after, size_t limit, std::vector<ObjectInfo> so_far,
                          Then<std::vector<ObjectInfo>> done) {
  Call call{request("GET", "")};
  call.what = "list after '" + after + "'";
  call.request.path = root_.empty() ? "/" : root_;
  call.request.query = {
      {"list-type", "2"}, {"max-keys", std::to_string(limit - so_far.size())}, {"prefix", prefix_}};
  if (!after.empty()) call.request.query["start-after"] = prefix_ + after;
  call.max_body_bytes = kMaxListBytes;
  auto listing = std::make_shared<S3Listing>();
  call.judge = [listing](HttpResponse& response) {
    auto read = read_listing(response.body);
    if (!read) return passing(read.error().message);
    *listing = *std::move(read);
    return S3Failure{};
  };
  call.done = [this, listing, after, limit, so_far = std::move(so_far),
               done = std::move(done)](Result<HttpResponse> response) mutable {
    if (!response) return done(fail(std::move(response).error()));
    std::string last = after;
    for (ObjectInfo& object : listing->objects) {
      if (!object.name.starts_with(prefix_)) continue;
      object.name.erase(0, prefix_.size());
      if (object.name == after) continue;
      if (object.name < last)
        return done(
            fail(Code::kUnsupported,
                 fmt::format("{} lists {} after {}: names like these do not go side by side",
                             describe(), object.name, last)));
      last = object.name;
      if (check_object_name(object.name)) so_far.push_back(std::move(object));
    }
    if (so_far.size() > limit) so_far.resize(limit);
    if (so_far.size() == limit || !listing->is_truncated) return done(std::move(so_far));
    if (last == after)
      return done(fail(Code::kUnavailable, describe() + ": the service's list does not go on"));
    list_more(last, limit, std::move(so_far), std::move(done));
  };
  start(std::move(call));
}

Result<std::string> S3Objects::link(const std::string& name, std::chrono::seconds valid_for) {
  TRY_STATUS(check_object_name(name));
  if (valid_for.count() < 1 || valid_for > kLongestLink)
    return fail(Code::kInvalidArgument, "a link is good for one second to seven days");
  TRY(const S3Credentials credentials, options_.credentials());
  return scheme_ + host_ +
         signed_target(request("GET", name), credentials, options_.region, std::time(nullptr),
                       valid_for.count());
}

}  // namespace kiln
