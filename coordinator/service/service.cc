#include "coordinator/service/service.h"

#include "cache/kernel_cache.h"
#include "compiler_core/kernels/registry.h"
#include "coordinator/service/service_loop.h"
#include "coordinator/storage/generation.h"

namespace kiln {

Service::Service(std::unique_ptr<ServiceLoop> loop) : loop_(std::move(loop)) {}
Service::~Service() {
  stop();
}
const std::string& Service::endpoint() const {
  return loop_->listener->endpoint();
}
PageSource& Service::page() {
  return loop_->page;
}

Result<std::unique_ptr<Service>> Service::start(ServiceOptions options) {
  // The store is opened first; the loop, which it calls, exists later and has nothing in memory
  // before.
  const auto hearer = std::make_shared<std::atomic<ServiceLoop*>>(nullptr);
  CacheOptions stored;
  stored.max_bytes = options.cache_bytes;
  stored.index_memory_bytes = options.index_bytes;
  stored.log = [hearer](std::string line) {
    if (ServiceLoop* loop = hearer->load())
      loop->inbox.post([loop, line = std::move(line)] {
        loop->log(LogLine("cache", LogLine::Level::kWarning).add("warning", line));
      });
  };
  stored.evicted = [hearer](std::vector<Digest> programs) {
    if (ServiceLoop* loop = hearer->load())
      loop->inbox.post([loop, programs = std::move(programs)] { loop->storage.evicted(programs); });
  };
  TRY(auto cache, KernelCache::open(options.data_dir, std::move(stored)));
  TRY(auto detached, PendingTaskStore::open(options.data_dir / "flights.sqlite"));
  TRY(auto signing_key, SigningKey::load_or_create(options.data_dir / kSigningFolder));
  TRY(auto keyring, open_keyring(options.endpoint, options.keys, options.data_dir));
  if (options.core.confirm >= 2 && keyring == nullptr)
    return fail(Code::kInvalidArgument,
                "--confirm 2 asks for workers with two keys, and this coordinator takes none: make "
                "some with `kiln keys new NAME --role worker` and name their folder with --keys");
  TRY(auto listener, Listener::bind(options.endpoint, keyring));
  if (options.core.templates.empty()) options.core.templates = template_versions();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto wall_us = std::chrono::duration_cast<std::chrono::microseconds>(wall).count();
  TRY(options.core.first_lease,
      first_lease_of_next_incarnation(options.data_dir, static_cast<uint64_t>(wall_us)));
  auto loop = std::make_unique<ServiceLoop>(std::move(options), std::move(cache),
                                            std::move(detached), std::move(signing_key),
                                            std::move(listener), std::move(keyring));
  for (const std::string& warning : {loop->store->warning(), loop->detached->warning()})
    if (!warning.empty())
      loop->log(LogLine("cache", LogLine::Level::kWarning).add("warning", warning));
  if (Status recovered = loop->storage.recover_tasks(); !recovered)
    return fail(std::move(recovered).error().within("flights.sqlite"));
  if (Status read = loop->storage.read_revocations(); !read)
    return fail(std::move(read).error().within("revocations"));
  hearer->store(loop.get());
  loop->thread = std::thread([running = loop.get()] { running->run(); });
  return std::unique_ptr<Service>(new Service(std::move(loop)));
}

void Service::stop() {
  ServiceLoop& loop = *loop_;
  if (!loop.thread.joinable()) return;
  if (loop.options.status != nullptr) {
    loop.options.status->set_phase(ServiceStatus::Phase::kStopping);
  }
  loop.stopping = true;
  loop.listener->wake();
  loop.thread.join();
  loop.planner.reset();
  loop.store->flush();
  loop.detached->flush();
}

}  // namespace kiln
