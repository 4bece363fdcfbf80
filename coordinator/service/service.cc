#include "coordinator/service/service.h"

#include "compiler_core/kernels/registry.h"
#include "coordinator/service/redis_front.h"
#include "coordinator/service/service_loop.h"
#include "coordinator/storage/open_store.h"

namespace kiln {

Service::Service(std::unique_ptr<ServiceLoop> loop) : loop_(std::move(loop)) {}
Service::~Service() {
  stop();
}
const std::string& Service::endpoint() const {
  return loop_->listener->endpoint();
}
std::string Service::redis_endpoint() const {
  return loop_->redis == nullptr ? "" : loop_->redis->endpoint();
}
PageSource& Service::page() {
  return loop_->page;
}

// Whoever has just taken the term has an address, and clients that wait: a database that is away for
// moments does not end it.
Status read_at_the_start(const std::function<Status()>& read_it) {
  using std::chrono::milliseconds;
  Outage outage;
  for (;; std::this_thread::sleep_for(milliseconds(100))) {
    Status read = read_it();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const bool is_away = !read && read.error().code == Code::kUnavailable;
    if (!is_away || !outage.may_pass(std::chrono::duration_cast<milliseconds>(now).count()))
      return read;
  }
}

Result<std::unique_ptr<Service>> Service::start(ServiceOptions options) {
  // The store is opened first; the loop, which it calls, exists later and has nothing in memory
  // before.
  const auto hearer = std::make_shared<std::atomic<ServiceLoop*>>(nullptr);
  StoreChoice choice;
  choice.data_dir = options.data_dir;
  choice.url = options.store;
  choice.blobs = options.blobs;
  choice.objects = options.objects;
  choice.stands_by = options.stands_by;
  choice.lost = options.lost;
  choice.address = options.endpoint;
  choice.max_bytes = options.cache_bytes;
  choice.copies_bytes = options.copies_bytes;
  choice.spool_bytes = options.spool_bytes;
  choice.index_bytes = options.index_bytes;
  choice.log = [hearer, log = options.log](std::string line) {
    const LogLine warning = LogLine("cache", LogLine::Level::kWarning).add("warning", line);
    ServiceLoop* const loop = hearer->load();
    if (loop != nullptr)
      loop->inbox.post([loop, warning] { loop->log(warning); });
    else if (log)
      log(warning);
  };
  choice.evicted = [hearer](std::vector<Digest> programs) {
    if (ServiceLoop* loop = hearer->load())
      loop->inbox.post([loop, programs = std::move(programs)] { loop->storage.evicted(programs); });
  };
  TRY(OpenedStore opened, open_store(choice));
  options.core.first_lease = opened.first_lease;
  if (options.leads) options.leads();
  TRY(auto detached, PendingTaskStore::open(options.data_dir / "flights.sqlite"));
  TRY(auto signing_key, SigningKey::load_or_create(options.data_dir / kSigningFolder));
  TRY(auto artifacts, ArtifactStore::open(options.data_dir / kArtifactsFile, signing_key,
                                          {options.artifact_bytes, {}}));
  TRY(auto keyring, open_keyring(options.endpoint, options.keys, options.data_dir));
  if (options.core.confirm >= 2 && keyring == nullptr)
    return fail(Code::kInvalidArgument,
                "--confirm 2 asks for workers with two keys, and this coordinator takes none: make "
                "some with `kiln keys new NAME --role worker` and name their folder with --keys");
  TRY(auto listener, Listener::bind(options.endpoint, keyring));
  if (options.core.templates.empty()) options.core.templates = template_versions();
  auto loop = std::make_unique<ServiceLoop>(std::move(options), std::move(opened),
                                            std::move(detached), std::move(artifacts),
                                            std::move(signing_key), std::move(listener), keyring);
  for (const std::string& warning :
       {loop->store->warning(), loop->detached->warning(), loop->artifact_store->warning()})
    if (!warning.empty())
      loop->log(LogLine("cache", LogLine::Level::kWarning).add("warning", warning));
  if (Status recovered = loop->storage.recover_tasks(); !recovered)
    return fail(std::move(recovered).error().within("flights.sqlite"));
  if (Status read = read_at_the_start([&] { return loop->storage.read_revocations(); }); !read)
    return fail(std::move(read).error().within("revocations"));
  if (Status read = read_at_the_start([&] { return loop->offers.read(); }); !read)
    return fail(std::move(read).error().within("offers"));
  if (!loop->options.redis.empty()) {
    TRY(loop->redis, RedisPort::open(loop->options.redis, redis_service(*loop, keyring)));
  }
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
  loop.redis.reset();
  loop.stopping = true;
  loop.listener->wake();
  loop.thread.join();
  loop.planner.reset();
  loop.store->flush();
  loop.detached->flush();
  loop.artifact_store->flush();
}

}  // namespace kiln
