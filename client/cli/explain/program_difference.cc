// Two normal forms are compared node by node: a node is what it does (the text form, without the
// names of its operands) and what its operands are. A difference is a node that the other program
// lacks although it has all of its operands; nodes that follow from it differ too, and are not
// reported. Here inputs are distinguished by type alone, so that nothing depends on their order.
#include "client/cli/explain/program_difference.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "compiler_core/ir/custom_op.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"

namespace kiln::cli {
namespace {

// One side: the labels and the identity of every node of its normal form.
class Side {
 public:
  Side(const ExportedProgram& program, NormalForm form)
      : program_(program), form_(std::move(form)) {
    read_labels();
    for (NodeId id = 0; id < graph().size(); ++id) {
      ids_.push_back(identity(id));
      known_.insert(ids_.back());
    }
  }

  const Graph& graph() const { return form_.graph; }
  const NormalForm& form() const { return form_; }
  const ExportedProgram& program() const { return program_; }
  const std::string& label(NodeId id) const { return labels_[static_cast<size_t>(id)]; }

  // Nodes that `other` lacks though it has what they are computed from.
  std::vector<NodeId> parts_from(const Side& other) const {
    std::vector<NodeId> roots;
    std::set<Digest> reported;
    for (NodeId id = 0; id < graph().size(); ++id) {
      const Node& node = graph().node(id);
      const Digest& own = ids_[static_cast<size_t>(id)];
      const bool follows =
          std::any_of(node.operands.begin(), node.operands.end(), [&](NodeId operand) {
            return !other.known_.contains(ids_[static_cast<size_t>(operand)]);
          });
      if (node.op == Op::kInput || follows || other.known_.contains(own)) continue;
      if (reported.insert(own).second) roots.push_back(id);
    }
    return roots;
  }

  std::string where(NodeId id) const {
    const OriginId at = graph().origin_of(id);
    if (at == kNoOrigin) return std::string(to_string(graph().node(id).op));
    const Origin& origin = graph().origins()[static_cast<size_t>(at)];
    return origin.op + (origin.source.empty() ? "" : " at " + origin.source) +
           (origin.module.empty() ? "" : ", module " + origin.module);
  }

  std::string what(NodeId id) const {
    const Node& node = graph().node(id);
    if (const auto* value = std::get_if<ConstantAttr>(&node.attr)) {
      std::ostringstream text;
      if (is_float(node.dtype))
        text << value->as_double();
      else
        text << value->as_int();
      return text.str() + " " + std::string(to_string(node.dtype));
    }
    return label(id);
  }

 private:
  // "%3 = mul %0 %2 : f32[4]" is "mul : f32[4]"; an input's position is dropped too.
  void read_labels() {
    std::istringstream text(print(graph()));
    std::string line;
    for (size_t skipped = 0; skipped <= graph().symbols().size(); ++skipped)
      std::getline(text, line);
    for (const Node& node : graph().nodes()) {
      std::getline(text, line);
      std::istringstream words(line.substr(line.find("= ") + 2));
      std::string label;
      for (std::string word; words >> word;) {
        const bool position = node.op == Op::kInput && word != "input" && label == "input";
        if (!word.starts_with('%') && !position) label += (label.empty() ? "" : " ") + word;
      }
      labels_.push_back(std::move(label));
    }
  }

  Digest identity(NodeId id) const {
    const Node& node = graph().node(id);
    std::vector<Digest> operands;
    for (NodeId operand : node.operands) operands.push_back(ids_[static_cast<size_t>(operand)]);
    if (traits(node.op).commutative) std::sort(operands.begin(), operands.end());
    Hasher hasher("kiln.difference");
    hasher.add(label(id)).begin_list(operands.size());
    for (const Digest& operand : operands) hasher.add(operand);
    return hasher.finish();
  }

  const ExportedProgram& program_;
  const NormalForm form_;
  std::vector<std::string> labels_;
  std::vector<Digest> ids_;  // by node
  std::set<Digest> known_;
};

class Comparing {
 public:
  Comparing(const Side& a, const Side& b) : a_(a), b_(b) {}

  std::vector<Difference> run() {
    ranges();
    inputs();
    outputs();
    operators();
    if (found_.empty())
      found_.push_back({"wiring", "the same operators on the same types", "", ""});
    return std::move(found_);
  }

 private:
  void add(std::string kind, std::string where, std::string first, std::string second) {
    found_.push_back({std::move(kind), std::move(where), std::move(first), std::move(second)});
  }

  static std::string range_text(const Graph& graph, size_t i) {
    if (i >= graph.symbols().size()) return "";
    const SymbolRange range = graph.symbols()[i].range;
    return std::to_string(range.min) + " to " +
           (range.max == INT64_MAX ? "any" : std::to_string(range.max));
  }
  void ranges() {
    const size_t most = std::max(a_.graph().symbols().size(), b_.graph().symbols().size());
    for (size_t i = 0; i < most; ++i) {
      const std::string first = range_text(a_.graph(), i), second = range_text(b_.graph(), i);
      if (first != second) add("range", "size s" + std::to_string(i), first, second);
    }
  }

  // Types of inputs, however many of each; by name where names say which one changed.
  void inputs() {
    std::map<std::string, std::string> first = input_types(a_), second = input_types(b_);
    std::multiset<std::string> only_first, only_second;
    for (const auto& [name, type] : first) only_first.insert(type);
    for (const auto& [name, type] : second) {
      const auto match = only_first.find(type);
      if (match == only_first.end())
        only_second.insert(type);
      else
        only_first.erase(match);
    }
    for (const auto& [name, type] : first) {
      const auto gone = only_first.find(type);
      if (gone == only_first.end()) continue;
      const auto other = second.find(name);
      const bool changed = other != second.end() && other->second != type;
      if (changed) {
        const auto come = only_second.find(other->second);
        if (come != only_second.end()) only_second.erase(come);
      }
      add("input", name, type, changed ? other->second : "");
      only_first.erase(gone);
    }
    for (const auto& [name, type] : second) {
      const auto come = only_second.find(type);
      if (come == only_second.end()) continue;
      add("input", name, "", type);
      only_second.erase(come);
    }
  }
  // The types of the inputs that the outputs need, by name.
  static std::map<std::string, std::string> input_types(const Side& side) {
    std::map<std::string, std::string> types;
    for (const NodeId id : side.graph().inputs()) {
      const Node& node = side.graph().node(id);
      const auto canonical = static_cast<size_t>(std::get<InputAttr>(node.attr).index);
      const auto position = static_cast<size_t>(side.form().input_order[canonical]);
      types[side.program().inputs[position].name] = to_string(OperandType{node.dtype, node.shape});
    }
    return types;
  }

  static std::string output_text(const Graph& graph, size_t i) {
    if (i >= graph.outputs().size()) return "";
    const Node& node = graph.node(graph.outputs()[i]);
    return to_string(OperandType{node.dtype, node.shape});
  }
  void outputs() {
    const size_t most = std::max(a_.graph().outputs().size(), b_.graph().outputs().size());
    for (size_t i = 0; i < most; ++i) {
      const std::string first = output_text(a_.graph(), i), second = output_text(b_.graph(), i);
      if (first != second) add("output", "output " + std::to_string(i), first, second);
    }
  }

  // Two nodes that come from one op of the program are one difference.
  void operators() {
    std::vector<NodeId> second = b_.parts_from(a_);
    for (NodeId id : a_.parts_from(b_)) {
      const auto same_place = std::find_if(second.begin(), second.end(), [&](NodeId other) {
        return b_.where(other) == a_.where(id) &&
               b_.graph().node(other).op == a_.graph().node(id).op;
      });
      const bool found = same_place != second.end();
      add(kind_of(a_, id), a_.where(id), a_.what(id), found ? b_.what(*same_place) : "");
      if (found) second.erase(same_place);
    }
    for (NodeId id : second) add(kind_of(b_, id), b_.where(id), "", b_.what(id));
  }
  static std::string kind_of(const Side& side, NodeId id) {
    return side.graph().node(id).op == Op::kConstant ? "constant" : "operator";
  }

  const Side &a_, &b_;
  std::vector<Difference> found_;
};

}  // namespace

Result<ProgramDifference> find_differences(const ExportedProgram& first,
                                           const ExportedProgram& second) {
  TRY(NormalForm a, normalise(first.graph));
  TRY(NormalForm b, normalise(second.graph));
  ProgramDifference difference{a.digest, b.digest, {}};
  if (difference.same()) return difference;
  const Side left(first, std::move(a)), right(second, std::move(b));
  difference.differences = Comparing(left, right).run();
  return difference;
}

}  // namespace kiln::cli
