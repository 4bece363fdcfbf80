// What a change in one layer of a model costs: that layer's kernels are tuned and no other, and of
// messages, one look-up for the program and one request for the blobs that are not here yet.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "schema/zmq/transport.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

// Stands between clients and a coordinator, hands on every message and counts the clients'.
class CountedWire {
 public:
  struct Counts {
    int look_ups = 0, uploads = 0, blob_requests = 0, blobs = 0, others = 0;
  };

  explicit CountedWire(std::string coordinator) : coordinator_(std::move(coordinator)) {
    listener_ = Listener::bind("tcp://127.0.0.1:0").value();
    thread_ = std::thread([this] { serve(); });
  }
  ~CountedWire() {
    stopping_ = true;
    listener_->wake();
    thread_.join();
  }
  const std::string& endpoint() const { return listener_->endpoint(); }
  // Since the last call. REQUIRES: no client is connected.
  Counts take() {
    std::lock_guard lock(mu_);
    return std::exchange(counts_, {});
  }

 private:
  void serve() {
    std::map<PeerId, std::unique_ptr<Connection>> upstream;
    while (!stopping_) {
      if (auto received = listener_->receive(5)) hand_on(*received, upstream[received->peer]);
      for (auto& [peer, connection] : upstream)
        while (auto reply = answer_of(connection.get())) listener_->send(peer, *reply);
      for (const PeerId& gone : listener_->take_gone()) upstream.erase(gone);
    }
  }
  static std::optional<Message> answer_of(Connection* connection) {
    if (connection == nullptr) return std::nullopt;
    auto message = connection->receive(0);
    return message ? std::optional<Message>(*std::move(message)) : std::nullopt;
  }
  void hand_on(const Received& received, std::unique_ptr<Connection>& connection) {
    if (std::holds_alternative<Hello>(received.message)) {
      auto opened = Connection::open(coordinator_, Role::kClient, 10'000);
      if (!opened) return;
      connection = *std::move(opened);
      listener_->send(received.peer, connection->welcome());
      return;
    }
    count(received.message);
    if (connection) (void)connection->send(received.message);
  }
  void count(const Message& message) {
    std::lock_guard lock(mu_);
    if (const auto* request = std::get_if<CompileRequest>(&message)) {
      ++(request->graph_text.empty() ? counts_.look_ups : counts_.uploads);
    } else if (const auto* blobs = std::get_if<BlobRequest>(&message)) {
      ++counts_.blob_requests;
      counts_.blobs += static_cast<int>(blobs->digests.size());
    } else if (!std::holds_alternative<BlobCredit>(message)) {
      ++counts_.others;
    }
  }

  const std::string coordinator_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false};
  std::mutex mu_;
  Counts counts_;  // guarded by mu_
  std::thread thread_;
};

// Layers one after the other: rows less one of their reductions, times a matrix. Equal reductions
// are equal layers.
std::string model(const std::vector<std::string>& reductions) {
  std::string text = "kiln.graph 1\n%0 = input 0 : f32[64,32]\n";
  int rows = 0, next = 1;
  for (size_t i = 0; i < reductions.size(); ++i) {
    const auto node = [&](const std::string& op, const char* shape) {
      text += "%" + std::to_string(next) + " = " + op + " : f32" + shape + "\n";
      return next++;
    };
    const auto ref = [](int id) { return " %" + std::to_string(id); };
    const int reduced = node(reductions[i] + ref(rows) + " axes=[1]", "[64]");
    const int spread = node("view" + ref(reduced) + " strides=[1,0] offset=[0]", "[64,32]");
    const int centred = node("sub" + ref(rows) + ref(spread), "[64,32]");
    const int weight = node("input " + std::to_string(i + 1), "[32,32]");
    rows = node("matmul" + ref(centred) + ref(weight), "[64,32]");
  }
  return text + "return %" + std::to_string(rows) + "\n";
}

class OneLayer : public ::testing::Test {
 protected:
  OneLayer() : service_(dir_.path() / "data"), wire_(service_.endpoint()) {}

  nlohmann::json compile(const std::string& name, const std::vector<std::string>& layers,
                         const std::string& mode) {
    const Path file = dir_.path() / (name + ".kiln");
    EXPECT_TRUE(write_file(file, model(layers)).has_value());
    const Finished done =
        ask({binary("kiln"), "compile", file, "--coordinator", wire_.endpoint(), "--cache-dir",
             dir_.path() / "cache", "--mode", mode, "--verify", "--no-fallback", "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.err << service_.log();
    return done.json();
  }
  int compiled() const {
    return ask({binary("kiln"), "stats", "--coordinator", service_.endpoint(), "--json"})
        .json()["candidates_compiled"]
        .get<int>();
  }

  const TempDir dir_ = *TempDir::create();
  Service service_;
  CountedWire wire_;
};

// What a program says of each of its kernels, by workload.
std::map<std::string, nlohmann::json> kernels_of(const nlohmann::json& program) {
  std::map<std::string, nlohmann::json> kernels;
  for (const auto& kernel : program["kernels"])
    kernels[kernel["workload"].get<std::string>()] = kernel;
  return kernels;
}

TEST_F(OneLayer, IsTunedAloneAmongLayersThatAreKnown) {
  const std::string same = "reduce_sum", other = "reduce_max";
  const auto first = compile("first", {same, same, same}, "max-autotune");
  const auto known = kernels_of(first);
  EXPECT_EQ(first["launches"], 6) << first;
  ASSERT_EQ(known.size(), 2u) << "equal layers are one: reduction and difference, product";
  const int before = compiled();
  EXPECT_GT(before, 3) << "tuned, not guessed";

  const auto second = compile("second", {same, other, same}, "max-autotune");
  EXPECT_EQ(second["cache"], "tuned") << "the program is new";
  auto changed = kernels_of(second);
  ASSERT_EQ(changed.size(), 3u) << second;
  for (const auto& [workload, kernel] : known) {
    EXPECT_EQ(changed[workload], kernel) << "as it was measured, to the last digit";
    changed.erase(workload);
  }
  ASSERT_EQ(changed.size(), 1u) << "one kernel is new";
  const int tuned = compiled() - before, candidates = changed.begin()->second["candidates"];
  EXPECT_GT(tuned, 1);
  EXPECT_LE(tuned, candidates) << "and the only one of which candidates were compiled";

  compile("third", {other, same, other}, "max-autotune");
  EXPECT_EQ(compiled() - before, tuned) << "layers that are known, in another order";
}

TEST_F(OneLayer, TakesOneLookUpAndOneRequestForTheBlobsThatAreMissing) {
  const std::string same = "reduce_sum", other = "reduce_max";
  compile("first", {same, same, same}, "default");
  const CountedWire::Counts first = wire_.take();
  EXPECT_EQ(first.look_ups, 1);
  EXPECT_EQ(first.uploads, 1) << "the coordinator asks for a graph that it does not know";
  EXPECT_EQ(first.blob_requests, 1);
  EXPECT_EQ(first.blobs, 2) << "one for each distinct kernel";
  EXPECT_EQ(first.others, 0);

  compile("second", {same, other, same}, "default");
  const CountedWire::Counts second = wire_.take();
  EXPECT_EQ(second.look_ups, 1);
  EXPECT_EQ(second.blob_requests, 1);
  EXPECT_EQ(second.blobs, 1) << "the other layers' kernels are here";
  EXPECT_EQ(second.others, 0);

  compile("third", {other, same, other}, "default");
  const CountedWire::Counts third = wire_.take();
  EXPECT_EQ(third.look_ups, 1);
  EXPECT_EQ(third.blob_requests, 0) << "nothing is missing";

  compile("second", {same, other, same}, "default");
  const CountedWire::Counts again = wire_.take();
  EXPECT_EQ(again.look_ups + again.uploads + again.blob_requests + again.others, 0)
      << "this machine's cache answers";
}

}  // namespace
}  // namespace kiln::testing
