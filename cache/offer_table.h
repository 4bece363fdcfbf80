// OfferTable: where a coordinator keeps the kernels that are offered as candidates, as text
// (program/offered_kernel.h) by key. Coordinators of one PostgreSQL share its table `offers`
// (PostgresStore); one with a disk of its own has them in its artifact store
// (coordinator/storage/artifact_offers.h). Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

struct ListedOffer {
  std::string key;
  std::string owner{};  // the name of the key that offered it; empty: there are no keys
  int64_t made_ms = 0;  // Unix time
  int64_t bytes = 0;    // of the text
};

class OfferTable {
 public:
  static constexpr size_t kMostEach = 64;  // for one workload and target; the oldest go

  virtual ~OfferTable() = default;
  // Whether other coordinators read it too.
  virtual bool is_shared() const = 0;
  // Oldest first. Waits for the answer. kUnavailable.
  virtual Result<std::vector<ListedOffer>> list_offers() = 0;

  // The functions below run on a thread of the table's, which must not wait for it.
  using Got = std::function<void(Result<std::string>)>;
  using Done = std::function<void(Status)>;
  // kNotFound is a fact, kUnavailable none.
  virtual void look_up_offer(std::string key, Got got) = 0;
  // In place of an earlier one of this key. The oldest go where there are too many.
  virtual void put_offer(ListedOffer offer, std::string text, Done done) = 0;
  // Removes what `owner` offered before `until_ms`.
  virtual void remove_offers(std::string owner, int64_t until_ms, Done done) = 0;
};

}  // namespace kiln
