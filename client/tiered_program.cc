#include "client/tiered_program.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "client/backoff.h"

namespace kiln {
namespace {

constexpr std::chrono::hours kPatience{24};            // of one request; then it is asked again
constexpr std::chrono::milliseconds kFirstPause{500};  // before a request that failed for now

// Tuned by the templates of today, with nobody waiting, and nowhere but at the service.
CompileOptions successor_options(CompileOptions options) {
  options.now = false;
  options.strict = true;
  options.background = true;
  options.no_fallback = true;
  options.deadline = kPatience;
  options.on_progress = {};
  options.on_message = {};
  options.on_span = {};
  options.traceparent.clear();
  return options;
}

bool may_pass(Code code) {
  return code == Code::kUnavailable || code == Code::kOverloaded || code == Code::kDeadlineExceeded;
}

}  // namespace

// `next` and `error` are written once, before `state` says so, and never again.
struct TieredProgram::Impl {
  std::shared_ptr<Client> client;
  Graph graph;
  CompileOptions options;
  std::shared_ptr<const CompiledProgram> first, next;
  Error error;
  std::atomic<State> state{State::kTuned};
  std::atomic<bool> ends{false};
  mutable std::mutex mu;
  mutable std::condition_variable changed;  // `state` or `ends`
  std::thread waiter;

  void become(State now) {
    const std::lock_guard lock(mu);
    state.store(now, std::memory_order_release);
    changed.notify_all();
  }

  void await_successor() {
    Backoff backoff(reinterpret_cast<uintptr_t>(this));
    while (!ends) {
      Client::Compiled tuned = client->compile(graph, options);
      if (tuned) {
        next = *std::move(tuned);
        return become(State::kTuned);
      }
      if (!may_pass(tuned.error().code)) {
        error = std::move(tuned).error();
        return become(State::kGivenUp);
      }
      const auto pause = backoff.next(kFirstPause, kPatience);
      std::unique_lock lock(mu);
      changed.wait_for(lock, pause.value_or(Backoff::kLongest), [this] { return ends.load(); });
    }
  }
};

Result<std::unique_ptr<TieredProgram>> TieredProgram::compile(std::shared_ptr<Client> client,
                                                              Graph graph, CompileOptions options) {
  options.now = true;
  auto impl = std::make_unique<Impl>();
  TRY(impl->first, client->compile(graph, options));
  const Outcome outcome = impl->first->outcome();
  if (outcome != Outcome::kTier0 && outcome != Outcome::kStale)
    return std::unique_ptr<TieredProgram>(new TieredProgram(std::move(impl)));
  impl->client = std::move(client);
  impl->graph = std::move(graph);
  impl->options = successor_options(std::move(options));
  Impl* const self = impl.get();
  impl->options.is_cancelled = [self] { return self->ends.load(); };
  impl->state = State::kAwaited;
  impl->waiter = std::thread([self] { self->await_successor(); });
  return std::unique_ptr<TieredProgram>(new TieredProgram(std::move(impl)));
}

TieredProgram::TieredProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TieredProgram::~TieredProgram() {
  {
    const std::lock_guard lock(impl_->mu);
    impl_->ends = true;
    impl_->changed.notify_all();
  }
  if (impl_->waiter.joinable()) impl_->waiter.join();
}

std::shared_ptr<const CompiledProgram> TieredProgram::current() const {
  return state() == State::kTuned && impl_->next != nullptr ? impl_->next : impl_->first;
}

const std::shared_ptr<const CompiledProgram>& TieredProgram::first() const {
  return impl_->first;
}

bool TieredProgram::has_successor() const {
  return impl_->client != nullptr;
}

TieredProgram::State TieredProgram::state() const {
  return impl_->state.load(std::memory_order_acquire);
}

Error TieredProgram::error() const {
  return impl_->error;
}

TieredProgram::State TieredProgram::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(impl_->mu);
  impl_->changed.wait_for(lock, timeout, [this] { return state() != State::kAwaited; });
  return state();
}

}  // namespace kiln
