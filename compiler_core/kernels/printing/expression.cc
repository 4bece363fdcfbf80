#include "compiler_core/kernels/printing/expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/kernels/printing/precision.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// The suffix that names the quick form of a function (device/math.cuh), where that saves much.
std::string_view rough_suffix(const Node& node) {
  if (register_type(node.dtype) != "vf32") return "";
  switch (node.op) {
    case Op::kDiv:
    case Op::kReciprocal:
    case Op::kExp:
    case Op::kTanh:
    case Op::kErf:
      return "_roughly";
    default:
      return "";
  }
}

std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(static_cast<size_t>(graph.size()));
  for (const Node& node : graph.nodes())
    for (NodeId operand : node.operands) ++reads[static_cast<size_t>(operand)];
  for (NodeId output : graph.outputs()) ++reads[static_cast<size_t>(output)];
  return reads;
}

}  // namespace

bool has_f8(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) { return is_f8(node.dtype); });
}

bool has_e8m0(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [](const Node& node) { return node.dtype == DType::kF8E8M0; });
}

ExpressionPrinter::ExpressionPrinter(const Graph& graph, Dialect dialect)
    : graph_(graph),
      dialect_(dialect),
      plain_nans_(find_plain_nans(graph)),
      ends_in_halves_(dialect == Dialect::kCuda
                          ? find_ending_in_halves(graph)
                          : std::vector<bool>(static_cast<size_t>(graph.size()))),
      stored_as_halves_(find_stored_as_halves(graph)),
      reads_(count_reads(graph)) {
  for (NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    bind_buffer(id, fmt::format("in{}", std::get<InputAttr>(node.attr).index),
                contiguous_strides(node.shape));
  }
}

void ExpressionPrinter::bind(NodeId node, Register at) {
  buffers_.erase(node);
  bound_[node] = std::move(at);
}

void ExpressionPrinter::bind_buffer(NodeId node, std::string pointer, std::vector<Dim> strides) {
  bound_.erase(node);
  buffers_[node] = {std::move(pointer), std::move(strides)};
}

void ExpressionPrinter::bind_packed(NodeId node, std::string packed) {
  packed_[node] = std::move(packed);
}

void ExpressionPrinter::unbind(NodeId node) {
  bound_.erase(node);
  buffers_.erase(node);
  packed_.erase(node);
}

std::string ExpressionPrinter::fresh() {
  return fmt::format("v{}", next_++);
}

void ExpressionPrinter::emit(Level level, const std::string& statement) {
  text_[static_cast<size_t>(level)] += statement + "\n";
}

std::string ExpressionPrinter::take(Level level, int indent) {
  std::string& lines = text_[static_cast<size_t>(level)];
  std::string indented;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin) + 1;
    indented.append(static_cast<size_t>(indent), ' ').append(lines, begin, end - begin);
    begin = end;
  }
  lines.clear();
  const auto is_inner = [](const auto& entry) { return entry.second.level == Level::kInner; };
  if (level == Level::kInner) {
    std::erase_if(known_, is_inner);
    std::erase_if(defined_, is_inner);
  }
  return indented;
}

// An index and the range it has: in another piece of a loop a Pad may have another value.
std::string ExpressionPrinter::key(NodeId id, Indices at) const {
  std::string key = std::to_string(id);
  for (const Index& index : at)
    key += fmt::format("|{}@{}:{}", index.has_lanes() ? index.lanes_text() : index.text(),
                       index.least(), index.greatest());
  return key;
}

Register ExpressionPrinter::define(Level level, bool splat, DType dtype,
                                   const std::string& expression) {
  return define(level, splat, register_type(dtype), expression);
}

Register ExpressionPrinter::define(Level level, bool splat, std::string_view type,
                                   const std::string& expression) {
  // Values that a broadcast repeats have other indices and the same text.
  const std::string text = fmt::format("{} {}", type, expression);
  if (const auto defined = defined_.find(text); defined != defined_.end()) return defined->second;
  Register result{fresh(), level, splat};
  emit(level, fmt::format("const {} {} = {};", type, result.name, expression));
  defined_[text] = result;
  return result;
}

Register ExpressionPrinter::value(NodeId id, Indices at) {
  if (const auto bound = bound_.find(id); bound != bound_.end()) return bound->second;
  const std::string name = key(id, at);
  if (const auto known = known_.find(name); known != known_.end()) return known->second;
  Register result = compute(id, at);
  known_[name] = result;
  return result;
}

Register ExpressionPrinter::compute(NodeId id, Indices at) {
  const Node& node = graph_.node(id);
  CHECK(at.size() == node.shape.size() || bound_.count(id) != 0, "one index for each axis");
  if (const auto packed = packed_.find(id); packed != packed_.end())
    return define(Level::kInner, false, node.dtype, fmt::format("unpack({})", packed->second));
  if (const auto buffer = buffers_.find(id); buffer != buffers_.end())
    return load(node.dtype, buffer->second.pointer, place(id, at), numel(node.shape));
  switch (node.op) {
    case Op::kConstant:
      return constant(node.dtype, std::get<ConstantAttr>(node.attr));
    case Op::kIota:
      return iota(node.dtype, at[0]);
    case Op::kView:
      return view(node, at);
    case Op::kPad:
      return pad(node, at);
    case Op::kConcat:
      return concat(node, at);
    case Op::kGather:
      return gather(node, at);
    case Op::kPhilox: {
      Index flat;
      const std::vector<Dim> strides = contiguous_strides(node.shape);
      for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * strides[k];
      return random(node, flat);
    }
    default:
      CHECK(is_elementwise(node.op), "reductions and matmuls are bound before they are read");
      return elementwise(id, at);
  }
}

Register ExpressionPrinter::constant(DType dtype, const ConstantAttr& value) {
  return define(Level::kKernel, true, dtype,
                fmt::format("splat<{}>({})", register_type(dtype), literal(dtype, value)));
}

Register ExpressionPrinter::iota(DType dtype, const Index& at) {
  const bool splat = !at.varies_by_lane();
  return define(
      at.level(), splat, dtype,
      narrowed(dtype, true,
               splat ? fmt::format("splat<{}>({})", register_type(dtype), at.text())
                     : fmt::format("convert<{}>({})", register_type(dtype), at.lanes_text())));
}

void ExpressionPrinter::align(Index at, Index inner, int64_t lanes) {
  rows_ = Rows{std::move(at), std::move(inner), lanes};
}

// Lane 0's alignment, in elements.
int64_t ExpressionPrinter::alignment(const Index& at) const {
  const int64_t known = at.alignment(kWidestAccess);
  return rows_ ? std::max(known, (at + rows_->at * -1).alignment(rows_->lanes)) : known;
}

std::string ExpressionPrinter::live(const Index& at, const Dim& elements) const {
  if (!rows_ || alignment(at) < rows_->lanes) return "live";
  return fmt::format("bounded(live, {})", (at * -1 + Index(elements)).text());
}

// Whole vectors around it lie in the buffer when every element that it may stand for does.
bool ExpressionPrinter::is_shifted(const Index& at, const Dim& elements) const {
  return rows_ && is_at_least(at.least(), 0) && is_less(at.greatest(), elements) &&
         alignment(at) < rows_->lanes &&
         (at + rows_->inner * -1).alignment(rows_->lanes) == rows_->lanes;
}

// "load", or "load<4>" where the vocabulary wants to know.
std::string ExpressionPrinter::aligned(std::string_view function, const Index& at) const {
  if (dialect_ == Dialect::kCpu) return std::string(function);
  return fmt::format("{}<{}>", function, alignment(at));
}

Register ExpressionPrinter::load(DType dtype, const std::string& pointer, const Index& at,
                                 const Dim& elements) {
  std::string expression;
  if (at.has_lanes())
    expression = fmt::format("load_lanes({}, {}, live)", pointer, at.lanes_text());
  else if (const Dim stride = at.lane_stride(); stride.is(0))
    expression = fmt::format("load_splat({} + {})", pointer, at.text());
  else if (stride.is(1) && is_shifted(at, elements))
    expression = fmt::format("load_shifted({0} + {1}, phase, bounded(live, {2}))", pointer,
                             at.text(), (at * -1 + Index(elements)).text());
  else if (stride.is(1))
    expression =
        fmt::format("{}({} + {}, {})", aligned("load", at), pointer, at.text(), live(at, elements));
  else
    expression = fmt::format("load_strided({} + {}, {}, live)", pointer, at.text(), stride);
  if (!readable_.empty())
    expression = fmt::format("({}) ? {} : {}{{}}", readable_, expression, register_type(dtype));
  return define(at.level(), !at.varies_by_lane(), dtype, expression);
}

Index ExpressionPrinter::place(NodeId id, Indices at) const {
  const Node& node = graph_.node(id);
  if (node.op == Op::kView) return flat(node, at);
  const std::vector<Dim>& strides = buffers_.at(id).strides;
  Index place;
  for (size_t k = 0; k < at.size(); ++k) place = place + at[k] * strides[k];
  return place;
}

void ExpressionPrinter::load_packed(NodeId id, Indices at, const std::string& packed, bool copies) {
  const Node& node = graph_.node(id);
  if (node.op == Op::kGather)
    return load_packed(node.operands[0], gathered(node, at), packed, copies);
  if (node.op == Op::kView && !lies_in_memory(id))
    return load_packed(node.operands[0], viewed(node, at), packed, copies);
  const Index from = place(id, at);
  const NodeId source = node.op == Op::kView ? node.operands[0] : id;
  const std::string& pointer = buffers_.at(source).pointer;
  const std::string lanes = live(from, numel(graph_.node(source).shape));
  const Dim stride = from.lane_stride();
  if (from.has_lanes())
    emit(Level::kInner,
         fmt::format("{} = load_lanes_packed({}, {}, live);", packed, pointer, from.lanes_text()));
  else if (!stride.is(1))
    emit(Level::kInner, fmt::format("{} = load_strided_packed({} + {}, {}, live);", packed, pointer,
                                    from.text(), stride));
  else if (copies)
    emit(Level::kInner, fmt::format("{}({} + {}, {}, {});", aligned("copy_packed", from), pointer,
                                    from.text(), lanes, packed));
  else
    emit(Level::kInner, fmt::format("{} = {}({} + {}, {});", packed, aligned("load_packed", from),
                                    pointer, from.text(), lanes));
}

// Whether the node's value may be good to some units in the last place of f32 only: all that comes
// of it is rounded to halves; or it is an exponential of what a row's maximum was taken from, which
// is at most 1, and off by less than an f32 next to 1 is.
bool ExpressionPrinter::allows_rough(NodeId id) const {
  if (dialect_ != Dialect::kCuda) return false;
  if (ends_in_halves_[static_cast<size_t>(id)]) return true;
  const Node& node = graph_.node(id);
  if (node.op != Op::kExp) return false;
  const Node& operand = graph_.node(node.operands[0]);
  if (operand.op != Op::kSub) return false;
  const Node& subtrahend = graph_.node(operand.operands[1]);
  return subtrahend.op == Op::kView && graph_.node(subtrahend.operands[0]).op == Op::kReduceMax;
}

// Whether the node is an input in memory, or a View of one: what lies there as f32 and is rounded was
// not computed in halves, and the program says where it is rounded.
bool ExpressionPrinter::lies_in_memory(NodeId id) const {
  const Node& node = graph_.node(id);
  const NodeId source = node.op == Op::kView ? node.operands[0] : id;
  return graph_.node(source).op == Op::kInput && buffers_.contains(source);
}

std::optional<Register> ExpressionPrinter::position(NodeId id, Indices at) {
  constexpr int64_t kGreatest = std::numeric_limits<int32_t>::max();
  const Node& node = graph_.node(id);
  if (node.op == Op::kView) {
    const Op source = graph_.node(node.operands[0]).op;
    if (source != Op::kIota && source != Op::kConstant) return std::nullopt;
    return position(node.operands[0], viewed(node, at));
  }
  if (node.op == Op::kIota && node.shape[0].is_constant() && node.shape[0].constant() <= kGreatest)
    return iota(DType::kI32, at[0]);
  if (node.op != Op::kConstant) return std::nullopt;
  const auto& value = std::get<ConstantAttr>(node.attr);
  if (value.as_int() > kGreatest || value.as_int() < -kGreatest) return std::nullopt;
  return constant(DType::kI32, value);
}

Register ExpressionPrinter::elementwise(NodeId id, Indices at) {
  const Node& node = graph_.node(id);
  // Vectors of i64 are two registers each, which compilers compare badly.
  if (dialect_ == Dialect::kCpu && traits(node.op).kind == OpKind::kCompare &&
      graph_.node(node.operands[0]).dtype == DType::kI64) {
    const auto x = position(node.operands[0], at), y = position(node.operands[1], at);
    if (x && y)
      return define(std::max(x->level, y->level), x->splat && y->splat, node.dtype,
                    fmt::format("op_{}({}, {})", to_string(node.op), x->name, y->name));
  }
  if (const auto gelu = allows_rough(id) ? gelu_operand(id) : std::nullopt) {
    const Register x = value(*gelu, at);
    return define(x.level, x.splat, node.dtype, fmt::format("op_gelu_roughly({})", x.name));
  }
  std::vector<Register> x;
  Level level = Level::kKernel;
  bool splat = true;
  for (NodeId operand : node.operands) {
    x.push_back(value(operand, at));
    level = std::max(level, x.back().level);
    splat = splat && x.back().splat;
  }
  const DType from = graph_.node(node.operands[0]).dtype;
  const bool plain = std::all_of(node.operands.begin(), node.operands.end(), [&](NodeId from_id) {
    return plain_nans_[static_cast<size_t>(from_id)];
  });
  if (node.op == Op::kCast && is_half(from) && node.dtype == DType::kF32)
    return x[0];  // it lies in an f32 register already
  const bool roughly = allows_rough(id);
  if (node.op == Op::kCast && is_16_bit_float(node.dtype) && register_type(from) == "vf32" &&
      roughly && stored_as_halves_[static_cast<size_t>(id)] && !lies_in_memory(node.operands[0]))
    return x[0];  // and is rounded where it ends
  if (node.op == Op::kCast)
    return define(level, splat, node.dtype, cast_expression(from, node.dtype, plain, x[0].name));
  // true is -1 in a register, so the order of bools is reversed.
  if (from == DType::kBool && (node.op == Op::kLt || node.op == Op::kLe)) std::swap(x[0], x[1]);
  std::string expression;
  if (node.op == Op::kDiv && register_type(node.dtype) == "vf32" && x[1].level < x[0].level) {
    // The same divisor serves a whole loop.
    const Register by =
        define(x[1].level, x[1].splat, "Divisor", fmt::format("divisor({})", x[1].name));
    expression =
        fmt::format("{}({}, {})", roughly ? "divide_roughly_by" : "divide_by", x[0].name, by.name);
  } else if (const std::string_view sign = infix(node.op); !sign.empty()) {
    expression = fmt::format("{} {} {}", x[0].name, sign, x[1].name);
  } else {
    expression = fmt::format("op_{}{}(", to_string(node.op), roughly ? rough_suffix(node) : "");
    for (size_t i = 0; i < x.size(); ++i) expression += (i ? ", " : "") + x[i].name;
    expression += ")";
  }
  const OpKind kind = traits(node.op).kind;
  const bool exact = kind == OpKind::kCompare || kind == OpKind::kSelect;
  return define(level, splat, node.dtype,
                exact ? expression : narrowed(node.dtype, plain, expression));
}

void ExpressionPrinter::store(int position, Indices at, bool stream) {
  const NodeId id = graph_.outputs()[static_cast<size_t>(position)];
  const Register result = value(id, at);
  Index flat;
  const std::vector<Dim> strides = contiguous_strides(graph_.node(id).shape);
  for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * strides[k];
  emit(Level::kInner,
       fmt::format("{}(out{} + {}, {}, live);", aligned(stream ? "stream" : "store", flat),
                   position, flat.text(), result.name));
}

void ExpressionPrinter::store_one(int position, Indices at) {
  const NodeId id = graph_.outputs()[static_cast<size_t>(position)];
  const Register result = value(id, at);
  Index flat;
  const std::vector<Dim> strides = contiguous_strides(graph_.node(id).shape);
  for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * strides[k];
  emit(std::max(result.level, flat.level()),
       fmt::format("store_one(out{} + {}, {});", position, flat.text(), result.name));
}

void ExpressionPrinter::store_to(const Register& value, const std::string& pointer,
                                 const Index& at) {
  emit(Level::kInner,
       fmt::format("{}({} + {}, {}, live);", aligned("store", at), pointer, at.text(), value.name));
}

}  // namespace kiln
