#include "worker/build/compile_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "compiler_core/program/cubin_waits.h"

namespace kiln {
namespace {

constexpr int64_t kCompileTimeoutMs = 60'000;

Compiled unavailable(const char* why) {
  return {fail(Code::kUnavailable, why), false, 0};
}

// An object as it is cached: "REGISTERS SPILL STACK SHARED\n", in bytes but for the first, then the
// binary.
std::string pack(const CompileTool::Object& object) {
  const KernelResources& r = object.resources;
  return fmt::format("{} {} {} {}\n", r.registers, r.spill_bytes, r.stack_bytes, r.shared_bytes) +
         object.binary;
}

std::optional<CompileTool::Object> unpack(std::string_view bytes) {
  CompileTool::Object object;
  KernelResources& r = object.resources;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  for (int* number : {&r.registers, &r.spill_bytes, &r.stack_bytes, &r.shared_bytes}) {
    const auto [after, error] = std::from_chars(at, end, *number);
    if (error != std::errc() || after == end) return std::nullopt;
    at = after + 1;
  }
  if (at[-1] != '\n') return std::nullopt;
  object.binary.assign(at, end);
  return object;
}

Artifact artifact_of(std::string binary, Recipe recipe) {
  const Digest digest = Digest::of(binary);
  recipe = with_safe_launches(std::move(recipe), binary);
  return {std::move(recipe), std::move(binary), digest};
}

}  // namespace

CompilePool::CompilePool(Toolchain toolchain, int jobs, std::optional<ObjectCache> cache)
    : toolchain_(std::move(toolchain)), cache_(std::move(cache)) {
  for (int i = 0; i < std::max(1, jobs); ++i) threads_.emplace_back([this] { work(); });
}

void CompilePool::stop() {
  const std::lock_guard lock(mu_);
  stopping_ = true;
  for (const Digest& key : queue_) {
    auto unstarted = open_.extract(key);
    for (Waiter& waiter : unstarted.mapped().waiters)
      waiter.promise.set_value(unavailable("the worker is stopping"));
  }
  queue_.clear();
  for (CompileTool* tool : tools_) tool->close();
  changed_.notify_all();
}

CompilePool::~CompilePool() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

std::future<Compiled> CompilePool::compile(Source source, const Target& target, uint64_t owner) {
  const Digest key = toolchain_.candidate_key(source, target);
  Waiter waiter{owner, source.recipe, {}};
  std::future<Compiled> future = waiter.promise.get_future();
  const std::lock_guard lock(mu_);
  if (stopping_) {
    waiter.promise.set_value(unavailable("the worker is stopping"));
    return future;
  }
  auto [at, is_new] = open_.try_emplace(key);
  at->second.waiters.push_back(std::move(waiter));
  at->second.leased = at->second.leased || owner != 0;
  if (is_new) {
    at->second.source = std::move(source);
    at->second.target = target;
    queue_.push_back(key);
    changed_.notify_one();
  }
  return future;
}

void CompilePool::cancel(uint64_t owner) {
  const std::lock_guard lock(mu_);
  for (auto at = open_.begin(); at != open_.end();) {
    Compile& compile = at->second;
    std::erase_if(compile.waiters, [&](Waiter& waiter) {
      if (waiter.owner != owner) return false;
      waiter.promise.set_value(unavailable("nobody needs it any more"));
      return true;
    });
    if (!compile.waiters.empty() || compile.interrupted) {
      ++at;
    } else if (compile.tool != nullptr) {
      compile.interrupted = true;
      compile.tool->interrupt();
      ++at;
    } else {
      std::erase(queue_, at->first);
      at = open_.erase(at);
    }
  }
}

CompilePool::Outcome CompilePool::run(const Digest& key, const Compile& compile,
                                      CompileTool& tool) {
  if (cache_)
    if (const auto bytes = cache_->find(key))
      if (auto object = unpack(*bytes)) return {*std::move(object), false, 0};
  const auto start = std::chrono::steady_clock::now();
  auto object = tool.compile(compile.source, compile.target, kCompileTimeoutMs);
  const auto end = std::chrono::steady_clock::now();
  const std::chrono::duration<double, std::milli> took = end - start;
  return {std::move(object), true, took.count(), end};
}

void CompilePool::work() {
  const std::unique_ptr<CompileTool> tool = toolchain_.make_tool();
  {
    const std::lock_guard lock(mu_);
    tools_.push_back(tool.get());
    if (stopping_) tool->close();
  }
  tool->warm_up();
  serve(*tool);
  const std::lock_guard lock(mu_);
  std::erase(tools_, tool.get());
}

void CompilePool::serve(CompileTool& tool) {
  std::unique_lock lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Digest key = queue_.front();
    queue_.pop_front();
    Compile& compile = open_.at(key);  // nobody erases it while it has a tool
    compile.tool = &tool;
    lock.unlock();
    Outcome outcome = run(key, compile, tool);
    lock.lock();
    compile.tool = nullptr;
    if (std::exchange(compile.interrupted, false) && !outcome.object && !compile.waiters.empty() &&
        !stopping_) {
      queue_.push_back(key);  // somebody has asked for it since
      continue;
    }
    const bool answered = outcome.object || outcome.object.error().code != Code::kUnavailable;
    compiled_ += compile.leased && outcome.ran && answered;
    std::vector<Waiter> waiters = std::move(open_.extract(key).mapped().waiters);
    lock.unlock();
    const bool is_new = outcome.ran && outcome.object;
    const std::string to_cache = is_new && cache_ ? pack(*outcome.object) : "";
    for (Waiter& waiter : waiters) {
      Compiled compiled{outcome.object.map([&](const CompileTool::Object& object) {
                          return artifact_of(object.binary, std::move(waiter.recipe));
                        }),
                        outcome.ran, outcome.ms,
                        outcome.object ? outcome.object->resources : KernelResources{},
                        outcome.ended};
      waiter.promise.set_value(std::move(compiled));
      outcome.ran = false;  // it ran once, for the first request
    }
    if (!to_cache.empty()) cache_->insert(key, to_cache);  // last: it waits for the disk
    lock.lock();
  }
}

}  // namespace kiln
