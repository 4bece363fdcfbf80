// Taking back what a revoked key offered (storage/offers.h): the kernels that won of it are found in the tuning log,
// and taken back with all that was made with them.
#include <memory>

#include "coordinator/service/service_loop.h"

namespace kiln {
namespace {

// One walk through the log, page by page.
struct Walk {
  std::set<std::string> names;  // templates
  std::set<Digest> kernels;     // found so far
  RecordQuery page{};
};

void walk_on(ServiceLoop& loop, const std::shared_ptr<Walk>& walk,
             const std::function<void(const Walk& walk)>& done) {
  loop.store->list_records(walk->page, [&loop, walk, done](const Result<RecordList>& list) {
    for (const ListedRecord& each : list ? list->records : std::vector<ListedRecord>())
      if (each.won.value_or(false) && walk->names.contains(each.record.schedule.template_name))
        walk->kernels.insert(each.record.kernel_key);
    walk->page.after = list ? list->last_id : 0;
    loop.post([&loop, walk, done] {
      if (walk->page.after == 0) return done(*walk);
      walk_on(loop, walk, done);
    });
  });
}

}  // namespace

void ServiceLoop::take_back_offers(const std::string& owner, int64_t until_ms) {
  const std::vector<std::string> names = offers.take_back(owner, until_ms);
  if (names.empty()) return;
  const auto walk = std::make_shared<Walk>();
  walk->names.insert(names.begin(), names.end());
  walk_on(*this, walk, [this, owner](const Walk& walked) {
    if (walked.kernels.empty()) return;
    TakeBack what;
    what.kernels.assign(walked.kernels.begin(), walked.kernels.end());
    const AdminAct act = trail.begin("", "take back what the revoked key " + owner + " offered");
    storage.take_back(std::move(what), [this, owner, act](const Result<TakenBack>& taken) {
      if (taken) trail.note(came_to(act, *taken));
      LogLine line("keys", taken ? LogLine::Level::kInfo : LogLine::Level::kWarning);
      line.add("state", taken ? "taken_back" : "not_taken_back").add("offers_of", owner);
      if (!taken) line.add("why", taken.error().message);
      log(line);
    });
  });
}

}  // namespace kiln
