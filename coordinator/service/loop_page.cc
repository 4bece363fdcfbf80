#include "coordinator/service/loop_page.h"

#include <condition_variable>

#include "compiler_core/base/clock.h"
#include "coordinator/service/service_loop.h"

namespace kiln {
namespace {

constexpr size_t kMostOpen = 1'000;
constexpr auto kPatience = std::chrono::seconds(2);     // with the loop
constexpr auto kActPatience = std::chrono::seconds(8);  // and with the disk behind it

}  // namespace

// A value that another thread brings, or does not.
template <class T>
struct LoopPage::Awaited {
  void set(T brought) {
    const std::lock_guard lock(mutex);
    value = std::move(brought);
    changed.notify_all();
  }
  Result<T> wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, patience, [this] { return value.has_value(); }))
      return fail(Code::kUnavailable, "the coordinator does not answer its page in time");
    return *std::move(value);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<T> value;  // guarded by mutex
};

LoopPage::LoopPage(ServiceLoop& loop, std::shared_ptr<Keyring> keyring)
    : loop_(loop),
      keyring_(std::move(keyring)),
      admin_(*loop.store, loop.storage, loop.core, loop, loop.trail,
             [this](const PeerId&, const AdminReply& reply) {
               const auto found = acts_.find(reply.request);
               if (found == acts_.end()) return;
               found->second->set({});
               acts_.erase(found);
             }) {}

Store& LoopPage::store() {
  return *loop_.store;
}

const std::string& LoopPage::endpoint() const {
  return loop_.listener->endpoint();
}

Result<page::Snapshot> LoopPage::snapshot() {
  const auto awaited = std::make_shared<Awaited<page::Snapshot>>();
  loop_.post([this, awaited] { awaited->set(take()); });
  auto taken = awaited->wait(kPatience);
  if (taken) taken->totals = loop_.store->totals();
  return taken;
}

page::Snapshot LoopPage::take() const {
  page::Snapshot now;
  now.now_ms = unix_ms();
  now.status = loop_.status_now();
  const History& history = loop_.history;
  now.seconds.assign(history.seconds().begin(), history.seconds().end());
  now.minutes.assign(history.minutes().begin(), history.minutes().end());
  now.busy_cpu_s = history.busy_cpu_s();
  now.busy_gpu_s = history.busy_gpu_s();
  now.strips = history.strips();
  now.open = loop_.core.open_programs(loop_.now_ms(), kMostOpen);
  now.misses.assign(loop_.tasks.misses().latest().begin(), loop_.tasks.misses().latest().end());
  for (Miss& miss : now.misses) miss.at_ms += now.now_ms - loop_.now_ms();
  now.acts_waiting.assign(loop_.trail.waiting().begin(), loop_.trail.waiting().end());
  now.acts = loop_.trail.count();
  return now;
}

Status LoopPage::act(AdminRequest request, const std::string& who) {
  const auto awaited = std::make_shared<Awaited<Status>>();
  loop_.post([this, awaited, request = std::move(request), who]() mutable {
    request.request = ++last_act_;
    acts_[request.request] = awaited;
    admin_.handle({"the page", who, std::move(request)});
  });
  TRY(Status done, awaited->wait(kActPatience));
  return done;
}

}  // namespace kiln
