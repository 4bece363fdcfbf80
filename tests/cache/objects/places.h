// The places that the contract of ObjectStore is tried on. Each test has one of its own; what is
// put there is seen by every store that it opens.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cache/objects/object_store.h"
#include "compiler_core/base/file.h"

namespace kiln {

class Place {
 public:
  virtual ~Place() = default;
  virtual std::unique_ptr<ObjectStore> open() = 0;
  virtual bool has_links() const { return false; }
};

class FolderPlace final : public Place {
 public:
  std::unique_ptr<ObjectStore> open() override { return open_objects(url(), {}).value(); }
  std::string url() const { return (dir_.path() / "objects").string(); }

 private:
  TempDir dir_ = TempDir::create("kiln-objects").value();
};

// Calls a store and waits for its answer: answer<std::string>([&](auto then) { store.get(name, then); }).
template <class T, class Ask>
Result<T> answer(Ask ask) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto future = promise->get_future();
  ask([promise](Result<T> result) { promise->set_value(std::move(result)); });
  return future.get();
}
inline Status put(ObjectStore& store, const std::string& name, std::string bytes) {
  return answer<void>([&](auto then) { store.put(name, std::move(bytes), then); });
}
inline Result<std::string> get(ObjectStore& store, const std::string& name) {
  return answer<std::string>([&](auto then) { store.get(name, then); });
}
inline Status remove(ObjectStore& store, const std::string& name) {
  return answer<void>([&](auto then) { store.remove(name, then); });
}
inline Result<std::vector<ObjectInfo>> list(ObjectStore& store, const std::string& after,
                                            int limit = ObjectStore::kMaxListed) {
  return answer<std::vector<ObjectInfo>>([&](auto then) { store.list(after, limit, then); });
}

}  // namespace kiln
