// Programs whose sizes come with the call: one for all of them, or several side by side.
#include <gtest/gtest.h>

#include <set>

#include "client/cli/session.h"
#include "client/specialised_program.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/program/program.h"

namespace kiln {
namespace {

// tanh(a) - b of [rows, 5].
Graph difference_of_rows(int64_t most_rows = 4096) {
  GraphBuilder builder;
  const Dim rows = Dim::symbol(builder.symbol({1, most_rows}, 31));
  const NodeId a = builder.input(DType::kF32, {rows, 5});
  const NodeId b = builder.input(DType::kF32, {rows, 5});
  return *builder.finish({builder.binary(Op::kSub, builder.unary(Op::kTanh, a), b)});
}

Tensor filled_rows(int64_t rows, double first) {
  Tensor tensor(DType::kF32, {rows, 5});
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.set(i, first + 0.01 * static_cast<double>(i % 97));
  return tensor;
}

template <class Run>
void expect_right(int64_t rows, Run run) {
  const Tensor a = filled_rows(rows, -1), b = filled_rows(rows, 3);
  const std::vector<const Tensor*> inputs = {&a, &b};
  const Result<std::vector<Tensor>> outputs = run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  const auto expected = interpret(difference_of_rows(), inputs);
  ASSERT_EQ((*outputs)[0].sizes(), (std::vector<int64_t>{rows, 5}));
  for (int64_t i = 0; i < a.numel(); ++i)
    ASSERT_NEAR((*outputs)[0].get(i), (*expected)[0].get(i), 1e-5) << rows << " rows, " << i;
}

class DynamicClientTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Client> client_ = *Client::create({});
  const CompileOptions options_;
  const SpecialisedProgram::Compile compile_ = [this](const Graph& graph) {
    return client_->compile(graph, options_);
  };
};

TEST_F(DynamicClientTest, OneProgramServesItsWholeRange) {
  const auto program = client_->compile(difference_of_rows(), options_);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ((*program)->program().symbols, (std::vector<ProgramSymbol>{{1, 4096, 31}}));
  for (const int64_t rows : {1, 2, 31, 32, 33, 1000, 4096, 1})
    expect_right(rows, [&](const auto& inputs) { return (*program)->run(inputs); });
}

TEST_F(DynamicClientTest, SizesItDoesNotServeAreRefusedByName) {
  const auto program = client_->compile(difference_of_rows(64), options_);
  ASSERT_TRUE(program) << program.error().message;
  const Tensor large = filled_rows(65, 0), seven = filled_rows(7, 0), eight = filled_rows(8, 0);
  const auto message = [&](const Tensor& a, const Tensor& b) {
    const std::vector<const Tensor*> inputs = {&a, &b};
    const auto outputs = (*program)->run(inputs);
    EXPECT_FALSE(outputs);
    return outputs ? "" : outputs.error().message;
  };
  EXPECT_EQ(message(large, large), "input 0 has size 65 along axis 0; the program takes 1 to 64");
  EXPECT_EQ(message(seven, eight),
            "input 1 has size 8 along axis 0, but by axis 0 of input 0 it would be 7");
  const std::vector<int64_t> rows = {7, 5};
  EXPECT_EQ(*(*program)->bind(std::vector<std::span<const int64_t>>{rows, rows}),
            std::vector<int64_t>{7});
  EXPECT_EQ((*(*program)->make_outputs(std::vector<int64_t>{7}))[0].sizes(), rows);
}

TEST_F(DynamicClientTest, ThreeSpecialisationsStandSideBySideAndGuardsPick) {
  const Graph graph = difference_of_rows();
  const std::vector<std::vector<int64_t>> hints = {{1, 32, 512}};
  const auto set =
      SpecialisedProgram::make(graph, *parts_of_hints(graph.symbols(), hints), compile_);
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ((*set)->parts().size(), 3u);
  std::set<Digest> keys;
  for (const auto& part : (*set)->parts()) {
    keys.insert(part.program->program().key);
    EXPECT_EQ(part.program->program().symbols[0].hint, part.sizes[0].hint);
  }
  EXPECT_EQ(keys.size(), 3u);
  const auto part_of = [&](int64_t rows) {
    return (*set)->find(std::vector<int64_t>{rows}) - (*set)->parts().data();
  };
  EXPECT_EQ(part_of(1), 0);
  EXPECT_EQ(part_of(5), 0);
  EXPECT_EQ(part_of(6), 1);
  EXPECT_EQ(part_of(128), 1);
  EXPECT_EQ(part_of(129), 2);
  EXPECT_EQ(part_of(4096), 2);
  for (const int64_t rows : {1, 7, 600})
    expect_right(rows, [&](const auto& inputs) { return (*set)->run(inputs); });
  EXPECT_EQ((*set)->parts().size(), 3u);
}

TEST_F(DynamicClientTest, ASizeOutsideEveryGuardIsSaidAndCompiledForOnce) {
  std::vector<std::string> said;
  const auto set = SpecialisedProgram::make(
      difference_of_rows(), {{{{32, 32}, 32}}, {{{64, 128}, 64}}}, compile_,
      [&said](const std::string& message) { said.push_back(message); });
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_TRUE((*set)->parts()[0].program->program().symbols.empty()) << "a size that is fixed";
  for (const int64_t rows : {32, 100})
    expect_right(rows, [&](const auto& inputs) { return (*set)->run(inputs); });
  EXPECT_TRUE(said.empty());
  for (const int64_t rows : {33, 4000})
    expect_right(rows, [&](const auto& inputs) { return (*set)->run(inputs); });
  EXPECT_EQ(said, std::vector<std::string>{
                      "no specialisation serves s0 = 33: compiling one for every size"});
  EXPECT_EQ((*set)->parts().size(), 3u);
  const Tensor large = filled_rows(4097, 0);
  const auto refused = (*set)->run(std::vector<const Tensor*>{&large, &large});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "input 0 has size 4097 along axis 0; the program takes 1 to 4096");
}

TEST(PartsOfHints, AreEveryRangeWithEveryOther) {
  const std::vector<Symbol> symbols = {{{1, 64}, 8}, {{1, 64}, 8}};
  const auto parts = parts_of_hints(symbols, std::vector<std::vector<int64_t>>{{1, 16}, {2, 32}});
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->size(), 4u);
  EXPECT_EQ((*parts)[1], (std::vector<Symbol>{{{1, 4}, 1}, {{9, 64}, 32}}));
  EXPECT_EQ(parts_of_hints(symbols, {})->size(), 1u);
  std::vector<int64_t> many;
  for (int64_t size = 1; size <= 9; ++size) many.push_back(size);
  EXPECT_FALSE(parts_of_hints(symbols, std::vector<std::vector<int64_t>>{many, many}));
  EXPECT_FALSE(parts_of_hints(symbols, std::vector<std::vector<int64_t>>{{65}}));
  EXPECT_FALSE(parts_of_hints(symbols, std::vector<std::vector<int64_t>>{{}, {}, {1}}));
}

TEST(ParseHints, NamesSymbolsAndAxesOfInputs) {
  ExportedProgram program;
  program.graph = difference_of_rows();
  for (const char* name : {"x", "net.bias"}) {
    ExportedInput input;
    input.name = name;
    input.shape = {Dim::symbol(0), 5};
    program.inputs.push_back(input);
  }
  const auto parsed = [&](std::vector<std::string> texts) {
    return cli::parse_hints(texts, program);
  };
  using Hints = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(*parsed({"s0=1,32,512"}), (Hints{{1, 32, 512}}));
  EXPECT_EQ(*parsed({"x.0=1", "net.bias.0=32"}), (Hints{{1, 32}}));
  EXPECT_EQ(*parsed({}), Hints{{}});
  for (const char* bad : {"s1=1", "s0", "s0=", "s0=1,,2", "s0=-1", "s0=1x", "x.1=5", "x.7=1",
                          "y.0=1", "x=1", "=1", "s0=99999999999999999999"}) {
    const auto hints = parsed({bad});
    ASSERT_FALSE(hints) << bad;
    EXPECT_EQ(hints.error().code, Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace kiln
