#include "worker/compile_pool.h"

#include <algorithm>
#include <chrono>

namespace kiln {
namespace {

constexpr int64_t kCompileTimeoutMs = 60'000;

}  // namespace

CompilePool::CompilePool(HostCompiler compiler, int jobs, std::optional<ObjectCache> cache)
    : compiler_(std::move(compiler)), cache_(std::move(cache)) {
  for (int i = 0; i < std::max(1, jobs); ++i) threads_.emplace_back([this] { work(); });
}

void CompilePool::stop() {
  const std::lock_guard lock(mu_);
  stopping_ = true;
  changed_.notify_all();
}

CompilePool::~CompilePool() {
  stop();
  for (std::thread& thread : threads_) thread.join();
  for (auto& [key, waiting] : open_)
    for (auto& promise : waiting)
      promise.set_value({fail(Code::kUnavailable, "the worker is stopping"), false, 0});
}

std::future<Compiled> CompilePool::compile(Source source, const Target& target) {
  const Digest key = compiler_.candidate_key(source, target);
  std::promise<Compiled> promise;
  std::future<Compiled> future = promise.get_future();
  const std::lock_guard lock(mu_);
  auto [at, is_new] = open_.try_emplace(key);
  at->second.push_back(std::move(promise));
  if (is_new) {
    tasks_.push_back({key, std::move(source), target});
    changed_.notify_one();
  }
  return future;
}

Compiled CompilePool::run(const Task& task) {
  if (cache_) {
    if (auto object = cache_->find(task.key)) {
      const Digest digest = Digest::of(*object);
      return {Artifact{task.source.recipe, *std::move(object), digest}, false, 0};
    }
  }
  const auto start = std::chrono::steady_clock::now();
  auto artifact = compiler_.compile(task.source, task.target, kCompileTimeoutMs);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (artifact && cache_) cache_->insert(task.key, artifact->binary);
  return {std::move(artifact), true, took.count()};
}

void CompilePool::work() {
  std::unique_lock lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    Compiled compiled = run(task);
    lock.lock();
    auto waiting = std::move(open_.extract(task.key).mapped());
    lock.unlock();
    for (auto& promise : waiting) {
      promise.set_value(compiled);
      compiled.ran = false;  // it ran once, for whoever asked first
    }
    lock.lock();
  }
}

}  // namespace kiln
