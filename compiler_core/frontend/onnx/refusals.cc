#include "compiler_core/frontend/onnx/refusals.h"

#include <algorithm>
#include <map>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// Operator sets that are read. Before 11 bounds, pads and the like were attributes, which is not
// followed.
constexpr int64_t kOldestOpset = 11, kNewestOpset = 24;

struct Refusal {
  std::string_view op, why;
};
constexpr std::string_view kLoop =
    "runs other graphs inside it, which Kiln does not read; export the model without control flow, "
    "or with torch.export";
constexpr std::string_view kDataSize =
    "gives a tensor whose size depends on data, and every size must follow from those of the "
    "inputs; keep all elements and mask them";
constexpr std::string_view kRecurrent =
    "is recurrent and not covered; export the model with torch.export, whose lstm and gru are";
constexpr std::string_view kStrings =
    "is of strings or sequences, and Kiln computes on tensors of "
    "numbers; keep it outside the model";
constexpr std::string_view kRandom =
    "is random, and ONNX's generator is not defined; give the numbers as an input";
constexpr Refusal kRefusals[] = {
    {"If", kLoop},
    {"Loop", kLoop},
    {"Scan", kLoop},
    {"SequenceMap", kLoop},
    {"NonZero", kDataSize},
    {"Unique", kDataSize},
    {"Compress", kDataSize},
    {"NonMaxSuppression", kDataSize},
    {"LSTM", kRecurrent},
    {"GRU", kRecurrent},
    {"RNN", kRecurrent},
    {"RandomNormal", kRandom},
    {"RandomNormalLike", kRandom},
    {"RandomUniform", kRandom},
    {"RandomUniformLike", kRandom},
    {"Bernoulli", kRandom},
    {"Multinomial", kRandom},
    {"StringNormalizer", kStrings},
    {"StringConcat", kStrings},
    {"StringSplit", kStrings},
    {"RegexFullMatch", kStrings},
    {"TfIdfVectorizer", kStrings},
    {"ImageDecoder", kStrings},
    {"SequenceConstruct", kStrings},
    {"SequenceEmpty", kStrings},
    {"SequenceInsert", kStrings},
    {"SequenceErase", kStrings},
    {"SequenceAt", kStrings},
    {"SequenceLength", kStrings},
    {"SplitToSequence", kStrings},
    {"ConcatFromSequence", kStrings},
    {"Optional", kStrings},
    {"OptionalGetElement", kStrings},
    {"OptionalHasElement", kStrings},
};

bool is_covered(const OnnxNode& node) {
  // The reader's own answers.
  constexpr std::string_view kOwn[] = {"Constant", "Shape", "Size"};
  return node.domain.empty() &&
         (std::find(std::begin(kOwn), std::end(kOwn), node.op) != std::end(kOwn) ||
          find_onnx_lowering(node.op) != nullptr);
}

Status check_opset(const OnnxModel& model) {
  const auto found = model.opsets.find("");
  const int64_t version = found == model.opsets.end() ? 0 : found->second;
  if (version >= kOldestOpset && version <= kNewestOpset) return {};
  if (version == 0)
    return fail(Code::kInvalidArgument, "imports no version of ONNX's own operator set");
  const std::string range = std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset);
  return fail(Code::kUnsupported,
              "opset " + std::to_string(version) + " is not covered, opsets " + range +
                  " are; export again with opset_version=" + std::to_string(18) +
                  ", or convert the model (onnx.version_converter)");
}

}  // namespace

std::string onnx_place(const OnnxNode& node) {
  const std::string_view name =
      !node.name.empty() || node.outputs.empty() ? node.name : node.outputs[0];
  return "node '" + std::string(name.substr(0, 120)) + "' (" + std::string(node.op.substr(0, 60)) +
         ")";
}

std::string onnx_refusal(const OnnxNode& node) {
  if (!node.domain.empty())
    return "is of the domain '" + std::string(node.domain.substr(0, 60)) +
           "', and Kiln reads ONNX's own operators; export without fused or custom operators, and "
           "inline functions (onnx.inliner.inline_local_functions)";
  for (const Refusal& each : kRefusals)
    if (each.op == node.op) return std::string(each.why);
  return "is not covered; export the model with torch.export, or write it with other operators "
         "(docs/operators.md lists them)";
}

Status refuse_uncovered_onnx_ops(const OnnxModel& model) {
  TRY_STATUS(check_opset(model));
  struct Use {
    size_t count = 0;
    std::string first, why;
  };
  std::map<std::string, Use> uses;
  TRY_STATUS(for_each_node(model, [&](const OnnxNode& node) -> Status {
    if (is_covered(node)) return {};
    const std::string name =
        (node.domain.empty() ? "" : std::string(node.domain.substr(0, 60)) + ".") +
        std::string(node.op.substr(0, 60));
    if (uses.size() >= 100 && !uses.contains(name)) return {};
    Use& use = uses[name];
    if (use.count++ == 0) use = {1, onnx_place(node), onnx_refusal(node)};
    return {};
  }));
  if (uses.empty()) return {};
  std::string message = "uses operators that Kiln does not cover:";
  for (const auto& [name, use] : uses)
    message += "\n  " + name + " (" + std::to_string(use.count) +
               (use.count == 1 ? " use, " : " uses, the first ") + use.first + "): " + use.why;
  return fail(Code::kUnsupported, std::move(message));
}

}  // namespace kiln
