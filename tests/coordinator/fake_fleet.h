// FakeWorker and TestClient: the two ends of a coordinator, scripted, over real sockets. A
// FakeWorker compiles nothing: each candidate "takes" the time that its index says, so that the
// second one wins, and its binary is a text. Header only; each object runs or belongs to one
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"
#include "schema/blob_assembly.h"
#include "schema/zmq/transport.h"

namespace kiln {

constexpr int kPatienceMs =
    60'000;  // with what comes at once on a machine that does not stand still

template <class Condition>
bool eventually(Condition condition, int seconds = 60) {
  for (int i = 0; i < seconds * 100; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

inline Target test_target() {
  return {Backend::kCpu, "x86-64-v3", "", 0, {}};
}

// A pointwise program; another `constant` is another program.
inline NormalForm test_graph(int constant) {
  const auto graph = parse_graph("kiln.graph 1\n%0 = input 0 : f32[64,16]\n%1 = constant " +
                                 std::to_string(constant) +
                                 " : f32[]\n%2 = view %1 strides=[0,0] offset=[0] : f32[64,16]\n"
                                 "%3 = mul %0 %2 : f32[64,16]\nreturn %3\n");
  CHECK(graph.has_value(), graph ? "" : graph.error().message);
  auto form = normalise(*graph);
  CHECK(form.has_value(), form ? "" : form.error().message);
  return *std::move(form);
}

// How often each candidate was compiled, over all workers.
class Tally {
 public:
  void add(const Digest& kernel, int index) {
    const std::lock_guard lock(mutex_);
    ++compiled_[{kernel, index}];
  }
  std::map<std::pair<Digest, int>, int> compiled() const {
    const std::lock_guard lock(mutex_);
    return compiled_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<Digest, int>, int> compiled_;
};

struct FakeWorkerOptions {
  std::string name = "worker";
  Target target = test_target();
  TemplateVersions templates = template_versions();
  std::optional<ClientKey> key{};  // of a coordinator that takes keys
  std::string toolkit = "no compiler";
  int slots = 1;
  size_t binary_bytes = 1'000;
  std::string binary_of = "binary of ";  // how each begins: another one builds other bytes
  bool vanish_with_a_lease = false;      // its connection ends once it has one, without a word
  std::atomic<bool>* go = nullptr;       // compiles nothing before this is true
  // What every candidate of a workload takes, by its graph's text; else candidates differ.
  double (*time_us)(const std::string& workload_text) = nullptr;
};

class FakeWorker {
 public:
  FakeWorker(const std::string& endpoint, Tally& tally, FakeWorkerOptions options = {})
      : tally_(tally), options_(std::move(options)) {
    ConnectOptions how;
    how.templates = options_.templates;
    how.key = options_.key;
    auto opened = Connection::open(endpoint, Role::kWorker, kPatienceMs, how);
    CHECK(opened.has_value(), opened ? "" : opened.error().message);
    connection_ = *std::move(opened);
    obey(first_orders());
    thread_ = std::thread([this] { run(); });
  }
  ~FakeWorker() {
    stopping_ = true;
    thread_.join();
  }
  bool vanished() const { return vanished_; }

 private:
  // The coordinator knows the worker from here on. The name's last holder may have left just now,
  // and is taken for connected until its socket's end is seen.
  WorkerOrders first_orders() {
    for (int attempt = 0; attempt < 1'200; ++attempt) {
      report();
      const auto message = connection_->receive(kPatienceMs);
      CHECK(message.has_value(), "a report is answered");
      if (const auto* orders = std::get_if<WorkerOrders>(&*message)) return *orders;
      const auto* refusal = std::get_if<Refusal>(&*message);
      CHECK(refusal != nullptr && refusal->error.code == Code::kUnavailable, "a report is taken");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    CHECK(false, "a name is free within a minute of its worker's end");
  }

  void run() {
    while (!stopping_) {
      const auto message = connection_->receive(20);
      if (message) {
        if (const auto* orders = std::get_if<WorkerOrders>(&*message)) obey(*orders);
      } else if (message.error().code != Code::kDeadlineExceeded) {
        return;
      }
      if (vanished_) {
        connection_.reset();
        return;
      }
      work();
      report();
    }
  }

  void obey(const WorkerOrders& orders) {
    for (const Job& job : orders.jobs) jobs_.try_emplace(job.lease, job);
    for (const ResultAck& ack : orders.acks) {
      std::erase_if(results_, [&](const CandidateResult& result) {
        return result.lease == ack.lease && result.index == ack.index;
      });
    }
    if (options_.vanish_with_a_lease && !jobs_.empty()) vanished_ = true;
  }

  void work() {
    if (options_.go != nullptr && !*options_.go) return;
    for (const auto& [lease, job] : jobs_) {
      if (!done_.insert(lease).second) continue;
      for (const CandidateJob& candidate : job.candidates)
        results_.push_back(try_out(job, candidate));
    }
  }

  CandidateResult try_out(const Job& job, const CandidateJob& candidate) {
    CandidateResult result;
    result.lease = job.lease;
    result.epoch = job.epoch;
    result.kernel_key = job.kernel_key;
    result.index = candidate.index;
    if (job.kind != Job::Kind::kFinal) {
      tally_.add(job.kernel_key, candidate.index);
      result.compiled = true;
    }
    if (job.kind != Job::Kind::kCompile) {
      const double us = options_.time_us != nullptr
                            ? options_.time_us(job.workload_text)
                            : 10.0 * (candidate.index == 1 ? 1 : 2 + candidate.index);
      result.measurement.samples_us.assign(static_cast<size_t>(job.policy.race_runs), us);
    }
    result.recipe_json = recipe_to_json(recipe_of(job.workload_text));
    result.binary =
        options_.binary_of + job.kernel_key.hex() + " " + std::to_string(candidate.index);
    result.binary.resize(options_.binary_bytes, '.');
    return result;
  }

  static Recipe recipe_of(const std::string& workload_text) {
    const auto graph = parse_graph(workload_text);
    CHECK(graph.has_value(), "a job's workload is a graph");
    Recipe recipe;
    const auto spec = [&](NodeId id) {
      return TensorSpec{graph->node(id).dtype, graph->node(id).shape};
    };
    for (const NodeId id : graph->inputs()) recipe.inputs.push_back(spec(id));
    for (const NodeId id : graph->outputs()) recipe.outputs.push_back(spec(id));
    recipe.phases = {{"kernel", 1}};
    return recipe;
  }

  void report() {
    WorkerReport report;
    report.worker = options_.name;
    report.target = options_.target;
    report.toolkit = options_.toolkit;
    report.slots = options_.slots;
    for (const auto& [lease, job] : jobs_) {
      if (!done_.contains(lease)) report.leases.push_back({lease, job.epoch, 0});
    }
    report.results = results_;
    (void)connection_->send(report);
  }

  Tally& tally_;
  const FakeWorkerOptions options_;
  std::unique_ptr<Connection> connection_;
  std::map<uint64_t, Job> jobs_;
  std::set<uint64_t> done_;
  std::vector<CandidateResult> results_;  // not acknowledged
  std::atomic<bool> stopping_{false}, vanished_{false};
  std::thread thread_;
};

class TestClient {
 public:
  explicit TestClient(std::unique_ptr<Connection> opened) : connection(std::move(opened)) {}
  explicit TestClient(const std::string& endpoint) {
    auto opened = Connection::open(endpoint, Role::kClient, kPatienceMs);
    CHECK(opened.has_value(), opened ? "" : opened.error().message);
    connection = *std::move(opened);
  }

  CompileRequest request_for(const NormalForm& graph, Mode mode = Mode::kMaxAutotune) {
    CompileRequest request;
    request.request = ++last_request_;
    request.graph = graph.digest;
    request.target = test_target();
    request.mode = mode;
    return request;
  }

  // Asks, uploads the graph when told to, and waits for the answer. `uploads` counts.
  CompileReply compile(const NormalForm& graph, CompileRequest request) {
    CHECK(connection->send(request).has_value(), "the coordinator takes messages");
    for (;;) {
      auto message = connection->receive(kPatienceMs);
      if (!message) return {request.request, fail(message.error()), ""};
      if (std::get_if<NeedGraph>(&*message) != nullptr) {
        ++uploads;
        request.graph_text = print(graph.graph);
        (void)connection->send(request);
      } else if (auto* reply = std::get_if<CompileReply>(&*message)) {
        return std::move(*reply);
      } else if (const auto* refusal = std::get_if<Refusal>(&*message)) {
        return {request.request, fail(refusal->error), ""};
      } else if (std::get_if<Progress>(&*message) != nullptr) {
        ++progress;
      }
    }
  }
  CompileReply compile(const NormalForm& graph) { return compile(graph, request_for(graph)); }
  // As compile(), but asks again while the coordinator takes results back, as every client does.
  CompileReply compile_with_retries(const NormalForm& graph, Mode mode = Mode::kMaxAutotune) {
    CompileReply reply;
    eventually([&] {
      reply = compile(graph, request_for(graph, mode));
      return reply.outcome || reply.outcome.error().code != Code::kOverloaded;
    });
    return reply;
  }

  struct Fetched {
    std::vector<std::string> blobs;  // those there are, in the order asked for
    std::vector<Digest> missing;
  };
  // The whole answer, and in how many pieces it came.
  Fetched fetch(const std::vector<Digest>& digests, int* pieces = nullptr) {
    Fetched all;
    BlobAssembly received(digests);
    const BlobRequest request{++last_request_, digests};
    (void)connection->send(request);
    for (int i = 1; !received.done(); ++i) {
      auto message = connection->receive(kPatienceMs);
      auto* reply = message ? std::get_if<BlobReply>(&*message) : nullptr;
      CHECK(reply != nullptr, "a blob request is answered");
      all.missing.insert(all.missing.end(), reply->missing.begin(), reply->missing.end());
      const auto credit = received.add(std::move(*reply));
      CHECK(credit.has_value(), "its chunks are in order");
      if (*credit > 0) (void)connection->send(BlobCredit{request.request, *credit});
      if (pieces != nullptr) *pieces = i;
    }
    for (const Digest& digest : digests)
      if (const std::string* blob = received.find(digest)) all.blobs.push_back(*blob);
    return all;
  }

  Stats stats() {
    (void)connection->send(StatsRequest{++last_request_});
    for (;;) {
      auto message = connection->receive(kPatienceMs);
      CHECK(message.has_value(), "a request for statistics is answered");
      if (const auto* reply = std::get_if<StatsReply>(&*message)) return reply->stats;
    }
  }

  std::unique_ptr<Connection> connection;
  int uploads = 0;
  std::atomic<int> progress{0};  // messages heard

 private:
  uint64_t last_request_ = 0;
};

}  // namespace kiln
