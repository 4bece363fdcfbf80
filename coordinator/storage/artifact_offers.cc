#include "coordinator/storage/artifact_offers.h"

#include <algorithm>
#include <utility>

#include "compiler_core/program/offered_kernel.h"

namespace kiln {

Result<std::vector<ListedOffer>> ArtifactOffers::list_offers() {
  TRY(auto artifacts, ArtifactStore::list(file_, kOfferedKind, 0));
  std::vector<ListedOffer> offers;
  for (ListedArtifact& each : artifacts)
    if (each.id.kind == kOfferedKind)
      offers.push_back({std::move(each.id.key), std::move(each.owner), each.made_ms, each.bytes});
  std::ranges::stable_sort(offers, {}, &ListedOffer::made_ms);
  return offers;
}

void ArtifactOffers::look_up_offer(std::string key, Got got) {
  store_.get({kOfferedKind, std::move(key)}, {}, [got = std::move(got)](Result<KeptArtifact> kept) {
    got(kept ? Result<std::string>(std::move(kept->value)) : fail(kept.error()));
  });
}

void ArtifactOffers::put_offer(ListedOffer offer, std::string text, Done done) {
  store_.put({kOfferedKind, std::move(offer.key)}, std::move(text), {}, std::move(offer.owner),
             std::move(done));
}

void ArtifactOffers::remove_offers(std::string owner, int64_t until_ms, Done done) {
  store_.take_back(std::move(owner), until_ms, [done = std::move(done)](Result<int64_t> removed) {
    done(removed ? Status{} : fail(std::move(removed).error()));
  });
}

}  // namespace kiln
