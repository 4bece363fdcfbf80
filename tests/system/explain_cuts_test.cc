// A program that can be cut in several ways, from a real coordinator to `kiln explain`, which has
// nothing but the coordinator to ask. The worker is scripted: what wins is no matter of luck.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/ir/builder.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

// Few rows over many keys: attention in one kernel, or in three.
Graph few_rows_of_many_keys() {
  GraphBuilder b;
  const Shape scores_shape = {2, 16, 512};
  const NodeId q = b.input(DType::kF32, {2, 16, 32}), k = b.input(DType::kF32, {2, 32, 512});
  const NodeId v = b.input(DType::kF32, {2, 512, 32});
  const NodeId scores = b.matmul(q, k);
  const auto over_keys = [&](Op op, NodeId x) {
    return b.broadcast(b.reduce(op, x, {2}, true), Shape(scores_shape));
  };
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, scores, over_keys(Op::kReduceMax, scores)));
  const NodeId weights = b.binary(Op::kDiv, e, over_keys(Op::kReduceSum, e));
  return b.finish({b.matmul(weights, v)}).value();
}

// All of attention in one kernel takes 900 us here; a product, or the softmax, 10.
double one_kernel_is_slow(const std::string& workload_text) {
  const bool attention = workload_text.find("matmul") != std::string::npos &&
                         workload_text.find("reduce_max") != std::string::npos;
  return attention ? 900 : 10;
}

class ExplainCuts : public ::testing::Test {
 protected:
  void SetUp() override {
    coordinator_ = Child::start({binary("kiln-coordinator"), "--data-dir", dir_.path() / "data",
                                 "--listen", "tcp://127.0.0.1:0", "--http", "none"},
                                dir_.path() / "out", dir_.path() / "err");
    std::string out;
    ASSERT_TRUE(eventually([&] {
      out = read_file(dir_.path() / "out").value_or("");
      return out.starts_with("ready ") && out.ends_with("\n");
    })) << read_file(dir_.path() / "err").value_or("");
    endpoint_ = out.substr(6, out.size() - 7);
    ASSERT_TRUE(write_file(file_, print(few_rows_of_many_keys())).has_value());
  }

  Finished explain(std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {binary("kiln"), "explain", file_,         "--coordinator",
                                        endpoint_,      "--mode",  "max-autotune"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }

  const TempDir dir_ = TempDir::create("kiln-cuts").value();
  const Path file_ = dir_.path() / "attention.kiln";
  Child coordinator_ = Child::none();
  std::string endpoint_;
};

TEST_F(ExplainCuts, TheCoordinatorAloneSaysWhatTheLosingCutTook) {
  const nlohmann::json before = explain({"--json"}).json();
  EXPECT_EQ(before["cache"], "miss") << before;
  EXPECT_EQ(before["alternative"], 0);
  ASSERT_EQ(before["alternatives"].size(), 2u);
  EXPECT_TRUE(before["alternatives"][0]["time_us"].is_null());

  Tally tally;
  FakeWorkerOptions options;
  options.target = host_cpu_target();
  options.time_us = one_kernel_is_slow;
  const FakeWorker worker(endpoint_, tally, options);
  TestClient client(endpoint_);
  const NormalForm form = normalise(few_rows_of_many_keys()).value();
  CompileRequest request = client.request_for(form);
  request.target = host_cpu_target();
  const CompileReply reply = client.compile(form, request);
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  const Program tuned = program_from_json(reply.program_json).value();
  EXPECT_EQ(tuned.launches.size(), 3u) << "the rules would leave one";

  const nlohmann::json after = explain({"--json"}).json();
  EXPECT_EQ(after["cache"], "hit") << after;
  EXPECT_EQ(after["alternative"], 1);
  ASSERT_EQ(after["alternatives"].size(), 2u);
  EXPECT_EQ(after["alternatives"][0]["name"], "by rules");
  EXPECT_EQ(after["alternatives"][0]["time_us"], 900);
  EXPECT_EQ(after["alternatives"][1]["time_us"], 30);
  EXPECT_EQ(after["launches"], 3);
  const std::string text = explain().out;
  EXPECT_NE(text.find("not: by rules, 1 launch, 900.0 us"), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln::testing
