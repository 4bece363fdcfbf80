#include "tests/system/pool/small_s3.h"

#include <string_view>
#include <utility>

namespace kiln::testing {
namespace {

using Reply = FaultyServer::Reply;

constexpr std::string_view kDigestHeader = "x-amz-meta-kiln-sha256";
constexpr std::string_view kPrefix = "/kiln/pool/";

Reply stalled() {
  return {"", Reply::Then::kStall};
}

}  // namespace

std::string_view SmallS3::name(Fault fault) {
  constexpr std::string_view kNames[kFaults] = {"none",        "status 500", "stall",
                                                "half a body", "false 404",  "lasting 404"};
  return kNames[static_cast<int>(fault)];
}

SmallS3::SmallS3() = default;

int SmallS3::port() const {
  return std::stoi(server_.endpoint().substr(server_.endpoint().rfind(':') + 1));
}

void SmallS3::set(Fault fault) {
  const std::scoped_lock lock(mu_);
  fault_ = fault;
  struck_ = false;
  denied_.clear();
  put_strike_ = {};
}

void SmallS3::arm_put(bool after, std::function<void()> strike) {
  const std::scoped_lock lock(mu_);
  struck_ = false;
  put_after_ = after;
  put_strike_ = std::move(strike);
}

bool SmallS3::struck() const {
  const std::scoped_lock lock(mu_);
  return struck_;
}

std::set<std::string> SmallS3::objects() const {
  const std::scoped_lock lock(mu_);
  std::set<std::string> names;
  for (const auto& [name, object] : objects_) names.insert(name);
  return names;
}

Reply SmallS3::put(const std::string& name, const FaultyServer::Request& request) {
  auto strike = std::exchange(put_strike_, {});
  if (!strike || put_after_)
    objects_[name] = {request.body, request.header(std::string(kDigestHeader))};
  if (!strike) return FaultyServer::reply(200, "");
  struck_ = true;
  strike();
  return stalled();
}

Reply SmallS3::get(const std::string& name) {
  const auto found = objects_.find(name);
  if (found == objects_.end()) return FaultyServer::error(404, "NoSuchKey");
  if (fault_ == Fault::kDenies || (fault_ == Fault::kFalse404 && denied_.insert(name).second)) {
    struck_ = true;
    return FaultyServer::error(404, "NoSuchKey");
  }
  const auto& [bytes, digest] = found->second;
  Reply whole =
      FaultyServer::reply(200, bytes, std::string(kDigestHeader) + ": " + digest + "\r\n");
  if (fault_ != Fault::kHalf) return whole;
  struck_ = true;
  whole.bytes.resize(whole.bytes.size() - bytes.size() / 2);
  return {std::move(whole.bytes), Reply::Then::kClose};
}

// The first one: whether there is an answer is all that a coordinator asks.
Reply SmallS3::list() const {
  std::string xml = "<?xml version=\"1.0\"?>\n<ListBucketResult><IsTruncated>false</IsTruncated>";
  if (!objects_.empty())
    xml += "<Contents><Key>pool/" + objects_.begin()->first +
           "</Key><Size>1</Size><LastModified>2026-11-24T00:00:00.000Z</LastModified></Contents>";
  return FaultyServer::reply(200, xml + "</ListBucketResult>");
}

Reply SmallS3::answer(const FaultyServer::Request& request) {
  const std::scoped_lock lock(mu_);
  const size_t space = request.head.find(' ');
  const std::string method = request.head.substr(0, space);
  const std::string path =
      request.head.substr(space + 1, request.head.find(' ', space + 1) - space - 1);
  if (fault_ == Fault::kFails || fault_ == Fault::kStalls) {
    struck_ = true;
    return fault_ == Fault::kStalls ? stalled() : FaultyServer::error(500, "InternalError");
  }
  if (method == "GET" && path.find("?list-type=2") != std::string::npos) return list();
  if (!path.starts_with(kPrefix)) return FaultyServer::error(404, "NoSuchBucket");
  const std::string name = path.substr(kPrefix.size());
  if (method == "PUT") return put(name, request);
  if (method == "GET") return get(name);
  objects_.erase(name);
  return FaultyServer::reply(204, "");
}

}  // namespace kiln::testing
