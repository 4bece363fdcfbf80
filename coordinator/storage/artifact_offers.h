// ArtifactOffers: the offered kernels of a coordinator with a disk of its own: artifacts of the kind
// kOfferedKind, within the bound of the artifact store and signed as its entries are. Thread-safe.
#pragma once

#include "cache/artifact_store.h"
#include "cache/offer_table.h"

namespace kiln {

class ArtifactOffers final : public OfferTable {
 public:
  // `file`: the store's. The store outlives it.
  ArtifactOffers(ArtifactStore& store, Path file) : store_(store), file_(std::move(file)) {}

  bool is_shared() const override { return false; }
  Result<std::vector<ListedOffer>> list_offers() override;
  void look_up_offer(std::string key, Got got) override;
  void put_offer(ListedOffer offer, std::string text, Done done) override;
  // Calls the store's take_back(), which removes every artifact that the owner put, not offers alone.
  void remove_offers(std::string owner, int64_t until_ms, Done done) override;

 private:
  ArtifactStore& store_;
  const Path file_;
};

}  // namespace kiln
