#include "cache/postgres/look_ups.h"

#include <algorithm>
#include <iterator>

#include "cache/postgres/reads.h"

namespace kiln {
namespace {

template <class T>
std::vector<std::pair<Digest, Store::Then<T>>> take(
    std::deque<std::pair<Digest, Store::Then<T>>>& from, size_t most) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size()));
  std::vector<std::pair<Digest, Store::Then<T>>> taken(std::make_move_iterator(from.begin()),
                                                       std::make_move_iterator(end));
  from.erase(from.begin(), end);
  return taken;
}

template <class T>
std::vector<Digest> keys_of(const std::vector<std::pair<Digest, Store::Then<T>>>& asked) {
  std::vector<Digest> keys;
  for (const auto& [key, then] : asked) keys.push_back(key);
  return keys;
}

template <class T>
Result<T> found_in(const std::map<Digest, Result<T>>& found, const Digest& key) {
  const auto entry = found.find(key);
  if (entry == found.end()) return fail(Code::kNotFound, "no program " + key.short_hex());
  return entry->second;
}

Result<std::string> found_in(const std::map<Digest, std::string>& found, const Digest& key) {
  const auto entry = found.find(key);
  if (entry == found.end()) return fail(Code::kNotFound, "no blob " + key.short_hex());
  return entry->second;
}

template <class T, class Found>
void answer(const std::vector<std::pair<Digest, Store::Then<T>>>& asked, const Found& found) {
  for (const auto& [key, then] : asked)
    then(found ? found_in(*found, key) : Result<T>(fail(found.error())));
}

}  // namespace

LookUps::LookUps(const std::string& url, const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this, url, name] { run(PgConnection(url, name)); });
}

LookUps::~LookUps() {
  {
    const std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  const auto closed = fail(Code::kUnavailable, "the store is being closed");
  for (const auto& [key, then] : programs_) then(closed);
  for (const auto& [key, then] : objects_) then(closed);
}

template <class T>
void LookUps::add(Waiting<T>& to, const Digest& key, Store::Then<T> then) {
  {
    const std::scoped_lock lock(mu_);
    if (!stopping_ && to.size() < kMostWaiting) {
      to.emplace_back(key, std::move(then));
      work_.notify_one();
      return;
    }
  }
  then(fail(Error{Code::kOverloaded, "too many look-ups wait for the store", 1000}));
}

void LookUps::program(const Digest& key, Store::Then<StoredProgram> then) {
  add(programs_, key, std::move(then));
}

void LookUps::object(const Digest& blob, Store::Then<std::string> then) {
  add(objects_, blob, std::move(then));
}

void LookUps::run(PgConnection connection) {
  for (;;) {
    std::vector<std::pair<Digest, Store::Then<StoredProgram>>> programs;
    std::vector<std::pair<Digest, Store::Then<std::string>>> objects;
    {
      std::unique_lock lock(mu_);
      work_.wait(lock, [this] { return stopping_ || !programs_.empty() || !objects_.empty(); });
      if (stopping_) return;
      programs = take(programs_, kMostTogether);
      objects = take(objects_, kMostTogether);
    }
    if (!programs.empty()) answer(programs, reads::programs(connection, keys_of(programs)));
    if (!objects.empty()) answer(objects, reads::objects(connection, keys_of(objects)));
  }
}

}  // namespace kiln
