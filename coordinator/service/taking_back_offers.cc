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
             const std::function<void(const Status& read, const Walk& walk)>& done) {
  loop.store->list_records(walk->page, [&loop, walk, done](const Result<RecordList>& list) {
    for (const ListedRecord& each : list ? list->records : std::vector<ListedRecord>())
      if (each.won.value_or(false) && walk->names.contains(each.record.schedule.template_name))
        walk->kernels.insert(each.record.kernel_key);
    walk->page.after = list ? list->last_id : 0;
    const Status read = list.map([](const RecordList&) {});
    loop.post([&loop, walk, done, read] {
      if (!read || walk->page.after == 0) return done(read, *walk);
      walk_on(loop, walk, done);
    });
  });
}

}  // namespace

void ServiceLoop::take_back_offers(const RevokedKey& key, int64_t until_ms) {
  const std::vector<std::string> names = offers.take_back(key.name, until_ms);
  if (names.empty()) return;
  const auto walk = std::make_shared<Walk>();
  walk->names.insert(names.begin(), names.end());
  walk_on(*this, walk, [this, key, until_ms](const Status& read, const Walk& walked) {
    if (!read) return take_back_again(key);
    if (walked.kernels.empty()) return offers.was_taken_back(key.name, until_ms);
    TakeBack what;
    what.kernels.assign(walked.kernels.begin(), walked.kernels.end());
    const AdminAct act = trail.begin("", "take back what the revoked key " + key.name + " offered");
    storage.take_back(std::move(what), [this, key, until_ms, act](const Result<TakenBack>& taken) {
      if (taken) trail.note(came_to(act, *taken));
      LogLine line("keys", taken ? LogLine::Level::kInfo : LogLine::Level::kWarning);
      line.add("state", taken ? "taken_back" : "not_taken_back").add("offers_of", key.name);
      if (!taken) line.add("why", taken.error().message);
      log(line);
      if (!taken) return take_back_again(key);
      offers.was_taken_back(key.name, until_ms);
    });
  });
}

// One that was being tuned when its offer was taken back goes as it comes.
void ServiceLoop::on(StoreKernel action) {
  tasks.traces().storing(action);
  const bool goes = offers.is_taken_back(action.kernel.schedule);
  TakeBack what;
  what.kernels = {action.kernel.key};
  storage.store(std::move(action));
  if (goes) storage.take_back(std::move(what), [](const Result<TakenBack>&) {});
}

}  // namespace kiln
