// Holds each kernel template's version to the text that it prints. The file
// tests/golden/template_digests.txt has a line for each template, target, workload and a few
// schedules: the version, and a digest of the source without comments and of the recipe. A text
// that changed under an unchanged version would leave winners of the old text in every cache, so it
// fails here:
//
//   1. raise version() of the template that is named;
//   2. with KILN_UPDATE_GOLDEN=1, tests/compiler_core_kernels_test of the build folder, given
//      --gtest_filter='TemplateDigests.*', rewrites the file, and refuses where 1 was left out.
//
// Comments and white space are free. A text that changed for no workload listed here is not seen.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "compiler_core/base/file.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/specialise.h"
#include "tests/compiler_core/ir/four_bits.h"
#include "tests/compiler_core/ir/sample_custom_op.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/gradient_graph.h"
#include "tests/compiler_core/kernels/joined_workloads.h"
#include "tests/compiler_core/kernels/open_workloads.h"
#include "tests/compiler_core/kernels/product_workloads.h"
#include "tests/compiler_core/kernels/row_updates.h"
#include "tests/compiler_core/plan/rms_norm_graphs.h"

namespace kiln {
namespace {

// Comments go, runs of white space become one space; texts in quotes stay as they are.
std::string stripped(std::string_view text) {
  std::string out;
  const auto space = [&out] {
    if (!out.empty() && out.back() != ' ') out += ' ';
  };
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) {
      i = std::min(text.find('\n', i), text.size());
      space();
    } else if (rest.starts_with("/*")) {
      const size_t end = text.find("*/", i + 2);
      i = end == std::string_view::npos ? text.size() : end + 2;
      space();
    } else if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      ++i;
      space();
    } else if (text[i] == '"' || text[i] == '\'') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out += text.substr(i, end - i);
      i = end;
    } else {
      out += text[i++];
    }
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

struct NamedWorkload {
  std::string name;
  Workload workload;
};

Graph call() {
  GraphBuilder b;
  const NodeId in[] = {b.input(DType::kF32, {40}), b.input(DType::kF32, {40})};
  return b.finish({testing::swish_op().call(b, in)}).value();
}

Graph odd_product() {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {300, 301}), y = b.input(DType::kBF16, {301, 300});
  return b.finish({b.cast(b.matmul(x, y), DType::kBF16)}).value();
}

Graph windows_channels_last(int64_t groups = 1) {
  GraphBuilder b;
  const NodeId x = b.permute(b.input(DType::kBF16, {2, 8, 8, 64}), {0, 3, 1, 2});
  const NodeId y = b.convolution(x, b.input(DType::kBF16, {64, 64 / groups, 3, 3}),
                                 testing::padded(1, 1, groups));
  return b.finish({b.cast(b.permute(y, {0, 2, 3, 1}), DType::kBF16)}).value();
}

// [64, 256] times the transpose of [96, 256], of 8 bits.
Graph narrow_product(DType stored, DType wide) {
  GraphBuilder b;
  const NodeId x = b.input(stored, {64, 256});
  const NodeId y = b.permute(b.input(stored, {96, 256}), {1, 0});
  const auto widened = [&](NodeId id) {
    return is_half(wide) ? b.cast(b.cast(id, DType::kF32), wide) : b.cast(id, wide);
  };
  return b.finish({b.matmul(widened(x), widened(y))}).value();
}

// 200 rows, each with one of five matrices.
Graph picked_product() {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {200, 1, 128});
  const NodeId table = b.input(DType::kBF16, {5, 128, 96});
  const NodeId matrices = b.gather(table, b.input(DType::kI64, {200}));
  return b.finish({b.cast(b.matmul(x, matrices), DType::kBF16)}).value();
}

// [16, 256] halves times the transpose of [96, 256] of 4 bits, two in a byte: (q - 8) * scale + addend.
Graph product_with_packed_weights() {
  GraphBuilder b;
  const Shape groups = {96, 2, 128};
  const auto factor = [&] {
    const NodeId x = b.input(DType::kBF16, {96, 2, 1});
    return b.broadcast(b.cast(x, DType::kF32), Shape(groups));
  };
  const NodeId values = testing::taken_apart(b, b.input(DType::kU8, {96, 128}), false);
  const NodeId q = b.cast(b.reshape(values, groups), DType::kF32);
  const NodeId moved = b.binary(Op::kSub, q, testing::constant_like(b, q, 8));
  const NodeId scaled = b.binary(Op::kMul, moved, factor());
  const NodeId w = b.cast(b.binary(Op::kAdd, scaled, factor()), DType::kBF16);
  const NodeId y = b.permute(b.reshape(w, {96, 256}), {1, 0});
  return b.finish({b.cast(b.matmul(b.input(DType::kBF16, {16, 256}), y), DType::kBF16)}).value();
}

// The same of weights in ATen's words.
Graph product_with_words() {
  GraphBuilder b;
  const NodeId q =
      b.cast(testing::words_apart(b, b.input(DType::kI32, {12, 4, 32, 2})), DType::kF32);
  const NodeId moved = b.binary(Op::kSub, q, testing::constant_like(b, q, 8));
  const NodeId w = b.permute(b.cast(moved, DType::kBF16), {1, 0});
  return b.finish({b.cast(b.matmul(b.input(DType::kBF16, {16, 256}), w), DType::kBF16)}).value();
}

// [16, 256] halves times the transpose of [96, 256] of 8 bits, in groups with scales and zeros.
Graph product_with_weights() {
  GraphBuilder b;
  const Shape groups = {96, 2, 128};
  const auto factor = [&](DType dtype) {
    return b.broadcast(b.cast(b.input(dtype, {96, 2, 1}), DType::kF32), Shape(groups));
  };
  const NodeId q = b.cast(b.reshape(b.input(DType::kI8, {96, 256}), groups), DType::kF32);
  const NodeId w =
      b.binary(Op::kMul, b.binary(Op::kSub, q, factor(DType::kI8)), factor(DType::kF32));
  const NodeId y = b.permute(b.reshape(b.cast(w, DType::kBF16), {96, 256}), {1, 0});
  return b.finish({b.cast(b.matmul(b.input(DType::kBF16, {16, 256}), y), DType::kBF16)}).value();
}

// One of each family with sizes of run time, the same at the sizes it is tuned for, a call, and
// halves for what tensor cores alone do.
const std::vector<NamedWorkload>& named_workloads() {
  static const std::vector<NamedWorkload> kAll = [] {
    std::vector<NamedWorkload> all;
    const auto add = [&all](const std::string& name, const Graph& graph) {
      auto made = make_workload(graph);
      EXPECT_TRUE(made) << name << ": " << made.error().message;
      all.push_back({name, made->workload});
    };
    for (const testing::OpenWorkload& open : testing::open_workloads()) {
      const Graph graph = parse_graph(open.graph).value();
      add(open.name, graph);
      std::vector<Symbol> fixed(graph.symbols().begin(), graph.symbols().end());
      for (Symbol& symbol : fixed) symbol.range = {symbol.hint, symbol.hint};
      add(open.name + std::string(", fixed"), specialise(graph, fixed).value());
    }
    add("a call", call());
    all.push_back({"halves, a row of a cache", testing::row_update({8, 600, 64})});
    add("halves, few rows", testing::plain_product(DType::kBF16, 12, 96, 512, {false, true}).graph);
    add("halves, projections of few rows",
        testing::projections(DType::kBF16, 12, 512, {96, 32}).graph);
    for (const int64_t rows : {12, 3}) {  // of two products, and of one
      GraphBuilder b;
      const NodeId x = testing::normed(b, b.input(DType::kBF16, {rows, 512}));
      std::vector<NodeId> outputs = {b.cast(testing::linear_of(b, x, 96), DType::kBF16)};
      if (rows == 12) outputs.push_back(b.cast(testing::linear_of(b, x, 32), DType::kBF16));
      add(fmt::format("{} rows of halves that a norm scales", rows), *b.finish(std::move(outputs)));
    }
    testing::AttentionGraph step = {.dtype = DType::kBF16,
                                    .batch = {2, 8},
                                    .rows = 1,
                                    .keys = 480,
                                    .depth = 64,
                                    .columns = 64,
                                    .shared_by = 4};
    add("halves, attention of a step", testing::attention_graph(step));
    step.cache = testing::AttentionGraph::Cache::kScaledTokens;
    add("halves, attention of a step behind 8 bits", testing::attention_graph(step));
    step.cache = testing::AttentionGraph::Cache::kPages;
    add("halves, attention of a step behind pages", testing::attention_graph(step));
    add("halves, projections", testing::projections(DType::kBF16, 200, 256, {128, 72, 72}).graph);
    add("halves, a gate", testing::gated(DType::kBF16, 200, 256, 96).graph);
    add("halves, a norm of parameters", testing::normed_product(DType::kBF16, 200, 256, 96).graph);
    add("halves, lines of odd lengths", odd_product());
    add("f32, not deep", testing::plain_product(DType::kF32, 128, 64, 40).graph);
    add("8-bit floats", narrow_product(DType::kF8E4M3, DType::kBF16));
    add("8-bit integers", narrow_product(DType::kI8, DType::kI32));
    add("halves, matrices that an index picks", picked_product());
    add("halves and 8-bit weights", product_with_weights());
    add("halves and 4-bit weights", product_with_packed_weights());
    add("halves and words of 4-bit weights", product_with_words());
    add("halves, windows",
        testing::plain(DType::kBF16, {2, 64, 8, 8}, {64, 64, 3, 3}, testing::padded(1, 1)).graph);
    add("halves, windows, channels last", windows_channels_last());
    add("halves, a window a channel, channels last", windows_channels_last(64));
    add("halves, a window a channel",
        testing::plain(DType::kBF16, {2, 24, 14, 14}, {24, 1, 5, 5}, testing::padded(1, 2, 24))
            .graph);
    add("halves, heads of 64",
        testing::attention_graph({.dtype = DType::kBF16,
                                  .batch = {2},
                                  .rows = 200,
                                  .keys = 330,
                                  .depth = 64,
                                  .columns = 64,
                                  .mask = testing::AttentionGraph::Mask::kCausal}));
    for (const Workload& kernel :
         testing::gradient_plan({.rows = 200, .keys = 330, .causal = true}).kernels)
      add(kernel.graph.outputs().size() == 1 ? "gradient of halves, queries"
                                             : "gradient of halves, keys and values",
          kernel.graph);
    return all;
  }();
  return kAll;
}

constexpr const char* kTargets[] = {"cpu:x86-64-v3", "cpu:x86-64-v4", "cuda:sm_80", "cuda:sm_90a"};

struct Place {  // of a text
  std::string name, target, workload, schedule;
  auto operator<=>(const Place&) const = default;
};
struct Printed {
  int version = 0;
  std::string digest;
  bool operator==(const Printed&) const = default;
};
using Digests = std::map<Place, Printed>;

Path digests_file() {
  return Path(KILN_SOURCE_DIR) / "tests/golden/template_digests.txt";
}

std::string digest_of(const Source& source) {
  return Hasher("kiln.printed.v1")
      .add(stripped(source.text))
      .add(recipe_to_json(source.recipe))
      .finish()
      .hex()
      .substr(0, 16);
}

Digests read_digests() {
  Digests digests;
  std::istringstream in(read_file(digests_file()).value_or(""));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string> fields;
    std::istringstream words(line);
    for (std::string field; std::getline(words, field, '|');) fields.push_back(field);
    if (fields.size() != 6) {
      ADD_FAILURE() << line;
      continue;
    }
    digests[{fields[0], fields[2], fields[3], fields[4]}] = {std::stoi(fields[1]), fields[5]};
  }
  return digests;
}

void write_digests(const Digests& digests) {
  std::string text =
      "# template|version|target|workload|schedule|digest: written by\n"
      "# tests/compiler_core/kernels/template_digests_test.cc, which says how.\n";
  for (const auto& [place, printed] : digests)
    text += fmt::format("{}|{}|{}|{}|{}|{}\n", place.name, printed.version, place.target,
                        place.workload, place.schedule, printed.digest);
  ASSERT_TRUE(write_file(digests_file(), text));
}

// The schedules that the file has for a place; where it has none, the first, a middle and the last
// candidate.
std::vector<std::string> schedules_for(const Digests& known, const KernelTemplate& made,
                                       const std::string& target, const NamedWorkload& named) {
  std::vector<std::string> schedules;
  for (auto at = known.lower_bound({std::string(made.name()), target, named.name, ""});
       at != known.end() && at->first.name == made.name() && at->first.target == target &&
       at->first.workload == named.name;
       ++at)
    schedules.push_back(at->first.schedule);
  if (!schedules.empty()) return schedules;
  const auto space = made.candidates(named.workload, *Target::parse(target));
  if (!space || space->empty()) return {};
  for (const size_t i : {size_t{0}, space->size() / 2, space->size() - 1})
    schedules.push_back((*space)[i].to_string());
  return schedules;
}

// What the templates of this build print: at the places of `known`, and at new ones. Templates that
// make no source are left out.
Digests printed_now(const Digests& known) {
  Digests now;
  for (const char* name : kTargets) {
    const Target target = *Target::parse(name);
    for (const NamedWorkload& named : named_workloads())
      for (const KernelTemplate* made : kernel_templates()) {
        if (!made->covers(named.workload, target)) continue;
        for (const std::string& schedule : schedules_for(known, *made, name, named)) {
          const auto source = lower_to_source(named.workload, *Schedule::parse(schedule), target);
          if (!source) continue;
          now[{std::string(made->name()), name, named.name, schedule}] = {made->version(),
                                                                          digest_of(*source)};
        }
      }
  }
  return now;
}

TEST(TemplateDigests, ATextThatChangedHasAnotherVersion) {
  const Digests known = read_digests(), now = printed_now(known);
  std::set<std::string> unraised;
  for (const auto& [place, printed] : now)
    if (const auto before = known.find(place); before != known.end() &&
                                               before->second.version == printed.version &&
                                               before->second.digest != printed.digest)
      unraised.insert(place.name);
  for (const std::string& name : unraised)
    ADD_FAILURE() << name << " prints another text (or recipe) under the same version: raise "
                  << "version() of it, then run this test with KILN_UPDATE_GOLDEN=1. Caches would "
                  << "keep the winners of the old text.";
  if (!unraised.empty()) return;
  if (std::getenv("KILN_UPDATE_GOLDEN") != nullptr) return write_digests(now);
  EXPECT_TRUE(known == now) << digests_file() << " is of other templates, versions or workloads: "
                            << "run this test with KILN_UPDATE_GOLDEN=1 and commit the file";
}

TEST(TemplateDigests, EveryTemplateOfSourceIsHeldToItsVersion) {
  std::set<std::string> held;
  for (const auto& [place, printed] : read_digests()) held.insert(place.name);
  for (const KernelTemplate* made : kernel_templates()) {
    bool is_called = false;  // makes something else than source
    for (const NamedWorkload& named : named_workloads())
      for (const char* name : kTargets) {
        const Target target = *Target::parse(name);
        if (held.contains(std::string(made->name())) || !made->covers(named.workload, target))
          continue;
        const auto space = made->candidates(named.workload, target);
        is_called = is_called || (space && !space->empty() &&
                                  !lower_to_source(named.workload, space->front(), target));
      }
    EXPECT_TRUE(held.contains(std::string(made->name())) || is_called)
        << made->name() << " has no line: add a workload here that it covers";
  }
}

TEST(TemplateDigests, CommentsAndWhiteSpaceAreFree) {
  EXPECT_EQ(stripped("int a;  // why\n\n/* and\n how */ int b;\n"), "int a; int b;");
  EXPECT_EQ(stripped("x = \"// not  one\"; y = '\"'; // one"), "x = \"// not  one\"; y = '\"';");
  EXPECT_NE(stripped("int ab;"), stripped("int a b;"));
  const Target target = *Target::parse("cuda:sm_90a");
  const Workload& workload = named_workloads().front().workload;
  Source source =
      lower_to_source(workload, search_space(workload, target).value().front(), target).value();
  const std::string digest = digest_of(source);
  ASSERT_NE(source.text.find("// ---- The kernel."), std::string::npos);
  source.text.insert(source.text.find("// ---- The kernel."), "// Another thought.\n");
  EXPECT_EQ(digest_of(source), digest);
  source.text += "int another;\n";
  EXPECT_NE(digest_of(source), digest);
}

}  // namespace
}  // namespace kiln
