// S3Objects: an ObjectStore in a bucket of an S3 service, below a prefix. Requests are signed, many
// go at once over bounded connections, and one that failed in a way that may pass is sent again,
// after a pause with jitter, until its deadline. Each object carries its SHA-256 as metadata
// ("kiln-sha256"), which get() checks where the service gives it back.
#pragma once

#include <atomic>

#include "cache/objects/http_client.h"
#include "cache/objects/s3_answers.h"
#include "cache/objects/s3_signer.h"

namespace kiln {

class S3Objects final : public ObjectStore {
 public:
  // `place`: "BUCKET" or "BUCKET/PREFIX". Asks nobody. kInvalidArgument: no such bucket's name,
  // prefix or endpoint; no credentials are given.
  static Result<std::unique_ptr<ObjectStore>> open(const std::string& place, S3Options options);

  void put(std::string name, std::string bytes, Then<void> done) override;
  void get(std::string name, Then<std::string> done) override;
  void remove(std::string name, Then<void> done) override;
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override;
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override;
  int64_t max_object_bytes() const override { return options_.max_object_bytes; }
  std::string describe() const override { return "s3://" + bucket_ + "/" + prefix_; }

 private:
  // One call of the store: a request, sent until it is answered.
  struct Call {
    S3Request request;
    std::shared_ptr<const std::string> body{};  // null: none
    int64_t max_body_bytes = 0;
    std::string what{};  // "get a/b": for the error
    // Whether a response is good; an error that may pass is asked again.
    std::function<S3Failure(HttpResponse&)> judge{};
    Then<HttpResponse> done{};
    std::chrono::steady_clock::time_point deadline{};
    int tries = 0;
    std::string access_key{};
  };
  S3Objects(std::string bucket, std::string prefix, S3Options options);
  // A request for `name` below the prefix.
  S3Request request(const char* method, const std::string& name) const;
  void start(Call call);
  void send(const std::shared_ptr<Call>& call);
  void hear(const std::shared_ptr<Call>& call, Result<HttpResponse> response);
  void send_later(const std::shared_ptr<Call>& call, Error why, const std::string& retry_after);
  void finish(const std::shared_ptr<Call>& call, Result<HttpResponse> result);
  void list_more(const std::string& after, size_t limit, std::vector<ObjectInfo> so_far,
                 Then<std::vector<ObjectInfo>> done);

  const std::string bucket_, prefix_;  // "" or "a/b/"
  const S3Options options_;
  std::string scheme_, host_, root_;  // root_: what the path of every request begins with
  std::atomic<int> open_{0};
  HttpClient client_;  // last: goes first, and answers what is open
};

}  // namespace kiln
