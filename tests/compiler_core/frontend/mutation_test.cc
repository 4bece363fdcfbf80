// Seeded mutations of real files: whatever comes out must be an error or a valid graph, never a
// crash. The seeds are fixed, so that a failure is found again.
#include <gtest/gtest.h>

#include <random>

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/pt2_archive.h"
#include "compiler_core/frontend/refusals.h"
#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

const Path kSmall = Path(KILN_GRAPHS_DIR) / "small";

// What breaks parsers: numbers at the edges, other structure, other names.
constexpr const char* kTokens[] = {"-1",
                                   "0",
                                   "1",
                                   "9223372036854775807",
                                   "-9223372036854775808",
                                   "18446744073709551615",
                                   "1e999",
                                   "null",
                                   "true",
                                   "\"\"",
                                   "{}",
                                   "[]",
                                   "as_int",
                                   "as_tensor",
                                   "as_none",
                                   "as_expr",
                                   "as_ints",
                                   "self",
                                   "dim",
                                   "aten.",
                                   "view",
                                   "sum",
                                   "matmul",
                                   "\\ud800",
                                   "\"x\"",
                                   ",",
                                   ":",
                                   "}",
                                   "]",
                                   "4294967296"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // One to four random edits.
  std::string operator()(std::string text) {
    for (size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) edit(text);
    return text;
  }
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }

  // The next number in the text becomes another: keeps JSON valid, and reaches the lowering.
  void replace_number(std::string& text, size_t at) {
    const size_t begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const char* numbers[] = {
        "0", "1", "2", "-1", "-2", "3", "16", "64", "9223372036854775807", "1099511627776"};
    text.replace(begin, end - begin, numbers[below(std::size(numbers))]);
  }

 private:
  void edit(std::string& text) {
    const size_t at = below(text.size());
    const size_t length = std::min(text.size() - at, 1 + below(24));
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random_());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 4:
        text.resize(at);
        break;
      case 5:
        swap_token(text, at);
        break;
      default:
        replace_number(text, at);
    }
  }
  void swap_token(std::string& text, size_t at) {
    text.replace(at, below(8), kTokens[below(std::size(kTokens))]);
  }
  std::mt19937_64 random_;
};

std::string model_of(const std::string& name) {
  const auto archive = Pt2Archive::open(kSmall / (name + ".pt2"));
  EXPECT_TRUE(archive);
  return archive->read_text("models/model.json").value();
}

class ModelMutation : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelMutation, gives_an_error_or_a_valid_graph) {
  const std::string original = model_of(GetParam());
  Mutator mutate(std::hash<std::string>{}(GetParam()));
  int accepted = 0;
  for (int i = 0; i < 300; ++i) {
    const auto model = parse_exported_model(mutate(original));
    if (!model) continue;
    const auto program = lower_exported_model(*model);
    if (!program) {
      EXPECT_FALSE(program.error().message.empty());
      continue;
    }
    ++accepted;
    EXPECT_TRUE(verify(program->graph)) << "mutation " << i;
  }
  // Some mutations change nothing that matters (a stack trace): the loop reaches the lowering.
  EXPECT_GT(accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(Programs, ModelMutation,
                         ::testing::Values("fused_gelu", "attention", "rope", "layernorm",
                                           "mlp_relu", "batch_dynamic_mlp", "seq_dynamic_softmax",
                                           "sdpa_causal", "cross_entropy", "train_step_mlp",
                                           "argmax", "cond_sin_cos", "embedding_sum",
                                           "conv_bn_relu"),
                         [](const auto& program) { return std::string(program.param); });

TEST(WholeModelMutation, of_llama_gives_an_error_or_a_valid_graph) {
  const std::string original = model_of("llama");
  Mutator mutate(7);
  for (int i = 0; i < 100; ++i) {
    const auto model = parse_exported_model(mutate(original));
    if (!model) continue;
    const auto program = lower_exported_model(*model);
    if (!program) continue;
    EXPECT_TRUE(verify(program->graph)) << "mutation " << i;
  }
}

// Every lowering meets arguments that were meant for another: JSON stays valid, so all of it
// reaches the lowerings.
TEST(WholeModelMutation, an_op_given_anothers_arguments_gives_an_error_or_a_valid_graph) {
  const std::vector<std::string_view> ops = covered_ops();
  const std::string prefix = "torch.ops.aten.";
  for (const char* name : {"attention", "rope", "layernorm", "train_step_mlp", "sdpa_causal",
                           "conv_bn_relu", "embedding_sum", "llama"}) {
    const std::string original = model_of(name);
    Mutator mutate(std::hash<std::string>{}(name));
    for (int i = 0; i < 400; ++i) {
      std::string text = original;
      size_t at = text.find(prefix, mutate.below(text.size()));
      if (at == std::string::npos) at = text.find(prefix);
      at += prefix.size() - std::string("aten.").size();
      text.replace(at, text.find('"', at) - at, ops[mutate.below(ops.size())]);
      for (int edits = 0; edits < 2; ++edits)
        mutate.replace_number(text, mutate.below(text.size()));
      const auto model = parse_exported_model(text);
      if (!model) continue;
      const auto program = lower_exported_model(*model);
      if (!program) continue;
      EXPECT_TRUE(verify(program->graph)) << name << " mutation " << i;
    }
  }
}

TEST(ArchiveMutation, gives_an_error_or_a_program_whose_payloads_give_errors_or_tensors) {
  const TempDir directory = TempDir::create("kiln_mutation_test").value();
  const Path file = directory.path() / "m.pt2";
  for (const char* name : {"mlp_relu", "sincos"}) {
    const std::string original = read_file(kSmall / (std::string(name) + ".pt2")).value();
    Mutator mutate(std::hash<std::string>{}(name));
    for (int i = 0; i < 400; ++i) {
      ASSERT_TRUE(write_file(file, mutate(original)));
      const auto program = read_graph_file(file);
      if (!program) continue;
      for (const ExportedInput& input : program->inputs) {
        const auto payload = read_payload(file, input);
        if (!payload) continue;
        EXPECT_EQ(payload->dtype(), input.dtype);
      }
    }
  }
}

TEST(SafetensorsMutation, gives_an_error_or_tensors) {
  const std::string original = read_file(kSmall / "seq_dynamic_softmax.safetensors").value();
  const size_t header =
      8 + static_cast<uint8_t>(original[0]) + 256 * static_cast<uint8_t>(original[1]);
  Mutator mutate(11);
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = mutate(original.substr(0, header)) + original.substr(header);
    const auto tensors = parse_safetensors(bytes);
    if (!tensors) {
      EXPECT_FALSE(tensors.error().message.empty());
      continue;
    }
    int64_t total = 0;
    for (const auto& [name, tensor] : *tensors) total += tensor.byte_size();
    EXPECT_LE(total, static_cast<int64_t>(bytes.size()));
  }
}

TEST(SourceLineMutation, gives_some_text) {
  const std::string original =
      "File \"net.py\", line 96, in forward\n    return f(x)\n  File \"lib/site-packages/a.py\", "
      "line 1, in f\n    return g(x)";
  Mutator mutate(13);
  for (int i = 0; i < 2000; ++i) EXPECT_LE(source_line(mutate(original)).size(), 400u);
}

}  // namespace
}  // namespace kiln
