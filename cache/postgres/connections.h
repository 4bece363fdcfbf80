// Connections: connections to one PostgreSQL that threads borrow, one at a time each. Some are kept for
// the next who asks. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "cache/postgres/connection.h"

namespace kiln {

class Connections {
 public:
  Connections(std::string url, std::string name) : url_(std::move(url)), name_(std::move(name)) {}

  template <class Read>
  auto with(Read read) {
    PgConnection connection = take();
    auto result = read(connection);
    const std::scoped_lock lock(mu_);
    if (free_.size() < kMostFree) free_.push_back(std::move(connection));
    return result;
  }

 private:
  static constexpr size_t kMostFree = 4;

  PgConnection take() {
    const std::scoped_lock lock(mu_);
    if (free_.empty()) return {url_, name_};
    PgConnection connection = std::move(free_.back());
    free_.pop_back();
    return connection;
  }

  const std::string url_, name_;
  std::mutex mu_;
  std::vector<PgConnection> free_;  // guarded by mu_
};

}  // namespace kiln
