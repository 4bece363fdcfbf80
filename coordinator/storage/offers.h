// Offers: which kernels are offered as candidates (program/offered_kernel.h), in front of the table
// that has them. A kernel that was tuned before an offer for its workload is stale, and so is
// a program with it; a kernel that was tuned beside an offer which is gone is not. Thread-safe: the
// loop adds, planner threads read. The table outlives it.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cache/offer_table.h"
#include "compiler_core/program/audience.h"
#include "compiler_core/program/offered_kernel.h"
#include "compiler_core/program/program.h"

namespace kiln {

class Offers {
 public:
  explicit Offers(OfferTable& table) : table_(table) {}

  // Reads what the table has from earlier, also from other coordinators. REQUIRES: nothing was put.
  Status read();

  // Whether `value` may be kept under `key`. kInvalidArgument: it is no offered kernel, or another's
  // than the key says; kPermissionDenied: it would be for some users only, while kernels are tuned for
  // all.
  static Status check(const std::string& key, std::string_view value, const Audience& audience);
  // `offer` is one from when `done` hears that it is stored. REQUIRES: check().
  void put(ListedOffer offer, std::string text, OfferTable::Done done);
  // The text of an offer. kNotFound; kUnavailable.
  void get(const std::string& key, OfferTable::Got got);

  // Takes the offers of a revoked key's owner until then from the candidates; the templates that those
  // were, also in earlier calls. They stay in a shared table until was_taken_back(), once nothing
  // that they won is left: whoever leads next knows them until then.
  std::vector<std::string> take_back(const std::string& owner, int64_t until_ms);
  void was_taken_back(const std::string& owner, int64_t until_ms);
  bool is_taken_back(const std::string& template_name) const;

  // The offers for this workload and target, oldest first. Waits for the table, as planner threads may.
  std::vector<OfferedKernel> of(const Digest& workload, const Target& target);

  // `stored`, the templates that had candidates when a kernel won, without the offers that are gone.
  static TemplateVersions without_gone(const TemplateVersions& stored,
                                       const TemplateVersions& current);

  // Whether some kernel of `program` was not tuned beside an offer that there is now. Only max-autotune,
  // which times, tries any.
  bool has_untried(const Program& program) const;

  // How many there are in a table of several coordinators, with their bytes; 0 of another, whose
  // store counts them.
  struct Shared {
    int64_t entries = 0, bytes = 0;
  };
  Shared shared() const;

 private:
  void added(ListedOffer offer);

  OfferTable& table_;
  mutable std::mutex mu_;
  // Guarded by mu_.
  std::map<std::string, std::vector<ListedOffer>> by_place_;  // oldest first
  std::map<std::string, std::set<std::string>> taken_back_;   // templates by owner
};

}  // namespace kiln
