// Programs whose sizes come at run time, through the real service: one compile serves every size,
// and a search begins with what won at the nearest size.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/kernel_cache.h"
#include "client/specialised_program.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

class Dynamic : public OneService<> {
 protected:
  static std::unique_ptr<Client> make_client() {
    ClientOptions options;
    options.coordinator = service_->endpoint();
    options.allow_fallback = false;
    options.connect_timeout = std::chrono::seconds(60);
    return *Client::create(options);
  }

  static int64_t misses() {
    const Finished stats =
        ask({binary("kiln"), "stats", "--coordinator", service_->endpoint(), "--json"});
    return stats.json().at("misses").get<int64_t>();
  }

  // Inputs of the graph for these symbols, from -1 to 1.
  static std::vector<Tensor> make_inputs(const Graph& graph, const std::vector<int64_t>& symbols) {
    std::vector<Tensor> inputs;
    for (NodeId id : graph.inputs()) {
      std::vector<int64_t> sizes;
      for (const Dim& dim : graph.node(id).shape) sizes.push_back(*dim.evaluate(symbols));
      Tensor& input = inputs.emplace_back(graph.node(id).dtype, sizes);
      for (int64_t i = 0; i < input.numel(); ++i)
        input.set(i, static_cast<double>((i * 7919 + 13) % 257 - 128) / 128);
    }
    return inputs;
  }

  static void expect_right(const CompiledProgram& program, const Graph& graph,
                           const std::vector<int64_t>& symbols) {
    SCOPED_TRACE(::testing::PrintToString(symbols));
    const std::vector<Tensor> inputs = make_inputs(graph, symbols);
    std::vector<const Tensor*> pointers;
    for (const Tensor& input : inputs) pointers.push_back(&input);
    const auto outputs = program.run(pointers);
    ASSERT_TRUE(outputs) << outputs.error().message;
    const auto expected = interpret(graph, pointers, Precision::kHigh);
    ASSERT_TRUE(expected) << expected.error().message;
    for (size_t i = 0; i < outputs->size(); ++i) {
      ASSERT_EQ((*outputs)[i].sizes(), (*expected)[i].sizes());
      for (int64_t k = 0; k < (*outputs)[i].numel(); ++k)
        ASSERT_NEAR((*outputs)[i].get(k), (*expected)[i].get(k), 1e-4) << i << " " << k;
    }
  }

  // One compile, then every size.
  static void expect_one_program(const std::string& name, Mode mode,
                                 const std::vector<std::vector<int64_t>>& sizes) {
    const auto exported = read_graph_file(small_graph(name) + ".pt2");
    ASSERT_TRUE(exported) << exported.error().message;
    const int64_t before = misses();
    CompileOptions options;
    options.mode = mode;
    options.verify = true;  // so that it is stored when it is answered
    const auto client = make_client();
    const auto program = client->compile(exported->graph, options);
    ASSERT_TRUE(program) << program.error().message << service_->log();
    for (const auto& symbols : sizes) expect_right(**program, exported->graph, symbols);
    EXPECT_EQ(misses(), before + 1);
    const auto again = make_client()->compile(exported->graph, options);
    ASSERT_TRUE(again);
    EXPECT_EQ((*again)->outcome(), Outcome::kHit);
  }
};

const std::vector<std::vector<int64_t>> kBatches = {{1}, {2}, {31}, {32}, {33}, {1000}, {4096}};

TEST_F(Dynamic, OneMlpServesEveryBatchInDefaultMode) {
  expect_one_program("batch_dynamic_mlp", Mode::kDefault, kBatches);
}
TEST_F(Dynamic, OneMlpServesEveryBatchWhenTuned) {
  expect_one_program("batch_dynamic_mlp", Mode::kMaxAutotune, kBatches);
}

const std::vector<std::vector<int64_t>> kRowsAndColumns = {{1, 1},  {1, 7},   {7, 1},    {3, 129},
                                                           {33, 5}, {64, 64}, {129, 255}};

TEST_F(Dynamic, OneSoftmaxServesEverySizeInDefaultMode) {
  expect_one_program("seq_dynamic_softmax", Mode::kDefault, kRowsAndColumns);
}
TEST_F(Dynamic, OneSoftmaxServesEverySizeWhenTuned) {
  expect_one_program("seq_dynamic_softmax", Mode::kMaxAutotune, kRowsAndColumns);
}

TEST_F(Dynamic, HintsMakeProgramsSideBySide) {
  const Finished made =
      ask({binary("kiln"), "compile", small_graph("batch_dynamic_mlp.pt2"), "--hint", "s0=1,32,512",
           "--coordinator", service_->endpoint(), "--no-fallback", "--verify", "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const nlohmann::json parts = made.json().at("specialisations");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0]["guards"][0], "1 <= s0 <= 5");
  EXPECT_EQ(parts[2]["symbols"][0]["hint"], 512);
  const Finished ran = ask({binary("kiln"), "run", small_graph("batch_dynamic_mlp.pt2"), "--expect",
                            small_graph("batch_dynamic_mlp.safetensors"), "--hint", "s0=1,32,512",
                            "--coordinator", service_->endpoint(), "--no-fallback", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.json()["cache"], "hit");
}

// A service of its own, whose records are read when it has stopped.
TEST(DynamicSearch, BeginsWithTheWinnerOfTheNearestSize) {
  const TempDir dir = *TempDir::create();
  std::vector<ProgramKernel> kernels;
  {
    Service service(dir.path() / "data");
    ClientOptions options;
    options.coordinator = service.endpoint();
    options.allow_fallback = false;
    options.connect_timeout = std::chrono::seconds(60);
    const auto client = *Client::create(options);
    for (const int64_t columns : {1000, 1016}) {
      GraphBuilder builder;
      const NodeId x = builder.input(DType::kF32, {48, columns});
      CompileOptions compile;
      compile.mode = Mode::kMaxAutotune;
      const Graph graph = *builder.finish({builder.reduce(Op::kReduceSum, x, {1})});
      const auto program = client->compile(graph, compile);
      ASSERT_TRUE(program) << program.error().message << service.log();
      kernels.push_back((*program)->program().kernels.at(0));
    }
    EXPECT_EQ(service.stop(), 0);
  }
  ASSERT_NE(kernels[0].key, kernels[1].key);
  const auto cache = KernelCache::open(dir.path() / "data");
  ASSERT_TRUE(cache) << cache.error().message;
  const auto records = (*cache)->records(kernels[1].key);
  ASSERT_TRUE(records && !records->empty());
  EXPECT_EQ(records->front().schedule.to_string(), kernels[0].schedule);
}

}  // namespace
}  // namespace kiln::testing
