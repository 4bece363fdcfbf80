// PostgresOffers: the offered kernels of a PostgresStore, which all its coordinators share: what one
// was given is a candidate of whoever leads after it, until it is removed. Only who has the term
// writes. A few hundred rows; texts are read one at a time. Thread-safe.
#pragma once

#include "cache/offer_table.h"
#include "cache/postgres/connections.h"
#include "cache/postgres/spooled_writes.h"

namespace kiln {

class PostgresOffers final : public OfferTable {
 public:
  static constexpr int64_t kMostBytes = int64_t{1} << 30;  // of all; then the oldest go

  // Both outlive its last answer.
  PostgresOffers(PostgresWriter& writer, Connections& connections)
      : writer_(writer), connections_(connections) {}

  bool is_shared() const override { return true; }
  Result<std::vector<ListedOffer>> list_offers() override;
  void look_up_offer(std::string key, Got got) override;
  void put_offer(ListedOffer offer, std::string text, Done done) override;
  void remove_offers(std::string owner, int64_t until_ms, Done done) override;

 private:
  PostgresWriter& writer_;
  Connections& connections_;
};

}  // namespace kiln
