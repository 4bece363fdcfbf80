// LookUps: threads that answer look-ups of programs and of blobs' objects, each with a connection of
// its own. What waits while a thread is at the database goes with one statement afterwards, so that a
// fleet that starts at once costs few. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/postgres/connection.h"
#include "cache/store.h"

namespace kiln {

class LookUps {
 public:
  LookUps(const std::string& url, const std::string& name, int threads);
  // Answers what waits with kUnavailable.
  ~LookUps();

  void program(const Digest& key, Store::Then<StoredProgram> then);
  void object(const Digest& blob, Store::Then<std::string> then);

 private:
  template <class T>
  using Waiting = std::deque<std::pair<Digest, Store::Then<T>>>;
  static constexpr size_t kMostTogether = 64;
  static constexpr size_t kMostWaiting = 100'000;

  void run(PgConnection connection);
  template <class T>
  void add(Waiting<T>& to, const Digest& key, Store::Then<T> then);

  std::mutex mu_;
  std::condition_variable work_;
  Waiting<StoredProgram> programs_;  // guarded by mu_, as is the rest
  Waiting<std::string> objects_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kiln
