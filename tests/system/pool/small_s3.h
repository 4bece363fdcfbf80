// SmallS3: as much of an S3 service as a coordinator needs, in memory, which fails on demand.
// Thread-safe. Signatures are not looked at; tests/cache/objects has services that do.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "tests/cache/objects/faulty_server.h"

namespace kiln::testing {

class SmallS3 {
 public:
  enum class Fault : uint8_t {
    kNone,
    kFails,     // status 500
    kStalls,    // takes the request and says nothing
    kHalf,      // half of an object, then the end
    kFalse404,  // of each object, once: it does not exist
    kDenies,    // of every object, for as long as it lasts
  };
  static constexpr int kFaults = 6;
  static std::string_view name(Fault fault);

  SmallS3();
  int port() const;
  static constexpr char kUrl[] = "s3://kiln/pool";
  void set(Fault fault);
  // Calls `strike` at the next PUT, before the object is there or when it is, and answers nothing.
  void arm_put(bool after, std::function<void()> strike);
  bool struck() const;  // since it was armed or set
  // The names of what there is, without the bucket's and the prefix.
  std::set<std::string> objects() const;

 private:
  FaultyServer::Reply answer(const FaultyServer::Request& request);
  FaultyServer::Reply put(const std::string& name, const FaultyServer::Request& request);
  FaultyServer::Reply get(const std::string& name);
  FaultyServer::Reply list() const;

  struct Object {
    std::string bytes, digest;  // digest: as its header says
  };
  mutable std::mutex mu_;
  // Guarded by mu_.
  Fault fault_ = Fault::kNone;
  bool struck_ = false, put_after_ = false;
  std::function<void()> put_strike_;  // empty: not armed
  std::map<std::string, Object> objects_;
  std::set<std::string> denied_;  // kFalse404
  FaultyServer server_{[this](const FaultyServer::Request& request) { return answer(request); }};
};

}  // namespace kiln::testing
