#include "compiler_core/ir/text.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "compiler_core/base/text.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/custom_call.h"

namespace kiln {
namespace {

// ---- print ----

std::string print_value(DType dtype, const ConstantAttr& value) {
  if (!is_float(dtype)) return std::to_string(value.as_int());
  const double number = value.as_double();
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char text[64];
  std::snprintf(text, sizeof text, "%a", number);
  return text;
}

std::string print_list(const std::vector<Dim>& dims) {
  return to_string(dims);
}

struct AttrPrinter {
  DType dtype;
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const InputAttr& a) const { return " " + std::to_string(a.index); }
  std::string operator()(const ConstantAttr& a) const { return " " + print_value(dtype, a); }
  std::string operator()(const ViewAttr& a) const {
    return " strides=" + print_list(a.strides) + " offset=[" + a.offset.to_string() + "]";
  }
  std::string operator()(const PadAttr& a) const {
    return " low=" + print_list(a.low) + " high=" + print_list(a.high) +
           " value=" + print_value(dtype, a.value);
  }
  std::string operator()(const AxisAttr& a) const { return " axis=" + std::to_string(a.axis); }
  std::string operator()(const ReduceAttr& a) const {
    std::vector<Dim> axes(a.axes.begin(), a.axes.end());
    return " axes=" + print_list(axes);
  }
  std::string operator()(const ConvolutionAttr& a) const {
    return " stride=" + numbers(a.stride) + " dilation=" + numbers(a.dilation) +
           " low=" + numbers(a.low) + " high=" + numbers(a.high) +
           " groups=" + std::to_string(a.groups);
  }
  std::string operator()(const ScatterAttr& a) const {
    return " combine=" + std::string(to_string(a.combine));
  }
  std::string operator()(const SortAttr& a) const {
    return a.descending ? " descending=1" : " descending=0";
  }
  std::string operator()(const PhiloxAttr& a) const {
    return " stream=" + std::to_string(a.stream);
  }
  std::string operator()(const CustomAttr& a) const {
    return " call=" + print_custom_call(*a.call);
  }
  static std::string numbers(const std::vector<int64_t>& values) {
    return print_list({values.begin(), values.end()});
  }
};

// ---- parse ----

// A cursor over one line.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::kInvalidArgument,
                "line " + std::to_string(number_) + ": " + std::string(what));
  }
  void skip_spaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  std::string_view word() {
    skip_spaces();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_' ||
            rest_[n] == '.' || rest_[n] == '-' || rest_[n] == '+'))
      ++n;
    const std::string_view result = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return result;
  }
  Result<int64_t> integer() {
    const std::string_view text = word();
    int64_t value = 0;
    if (!read_number(text, value)) return bad("expected an integer");
    return value;
  }
  // "[a,b,...]" of sizes.
  Result<std::vector<Dim>> list() {
    if (!take("[")) return bad("expected '['");
    const size_t close = rest_.find(']');
    if (close == std::string_view::npos) return bad("expected ']'");
    std::string_view body = rest_.substr(0, close);
    rest_.remove_prefix(close + 1);
    std::vector<Dim> dims;
    while (!body.empty()) {
      const size_t comma = body.find(',');
      auto dim = Dim::parse(body.substr(0, comma));
      if (!dim) return bad(dim.error().message);
      dims.push_back(*std::move(dim));
      if (comma == std::string_view::npos) break;
      body.remove_prefix(comma + 1);
      if (body.empty()) return bad("a list ends with a comma");
    }
    return dims;
  }
  Result<ConstantAttr> value(DType dtype) {
    std::string text(word());
    if (text.empty() || text.size() > 64) return bad("expected a value");
    if (!is_float(dtype)) {
      int64_t number = 0;
      if (!read_number(text, number)) return bad("expected an integer");
      if (dtype == DType::kBool && (number < 0 || number > 1)) return bad("a bool is 0 or 1");
      return ConstantAttr{static_cast<uint64_t>(number)};
    }
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size()) return bad("expected a number");
    return constant_bits(dtype, number);
  }

 private:
  std::string_view rest_;
  int number_;
};

constexpr std::string_view kFrom = "\n#from\t";
constexpr size_t kMaxOriginField = 200;  // bytes

// One field of a line of tabs.
std::string field(std::string_view text) {
  size_t bytes = std::min(text.size(), kMaxOriginField);
  while (bytes < text.size() && bytes > 0 && (static_cast<unsigned char>(text[bytes]) >> 6) == 2)
    --bytes;  // whole characters of UTF-8
  std::string kept(text.substr(0, bytes));
  std::ranges::replace_if(
      kept, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return kept;
}

std::string_view take_until(std::string_view& rest, char end) {
  const std::string_view taken = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(rest.size(), taken.size() + 1));
  return taken;
}

class Parser {
 public:
  Result<Graph> run(std::string_view text) {
    read_origins(text);
    bool saw_header = false;
    std::optional<std::vector<NodeId>> outputs;
    for (int number = 1; !text.empty(); ++number) {
      const size_t end = text.find('\n');
      Line line(text.substr(0, end), number);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (line.at_end() || line.take("#")) continue;
      if (!saw_header) {
        if (!line.take("kiln.graph 1") || !line.at_end())
          return line.bad("expected 'kiln.graph 1': this is not Kiln's text form, version 1");
        saw_header = true;
      } else if (outputs) {
        return line.bad("nothing may follow 'return'");
      } else if (line.take("return")) {
        TRY(outputs, returned(line));
      } else if (line.take("%")) {
        TRY_STATUS(node(line));
      } else {
        TRY_STATUS(symbol(line));
      }
    }
    if (!outputs) return fail(Code::kInvalidArgument, "the text ends before 'return'");
    return builder_.finish(*std::move(outputs));
  }

 private:
  // They stand behind the nodes, which are told as they are made.
  void read_origins(std::string_view text) {
    std::string_view rest = text.substr(without_origins(text).size());
    while (!rest.empty()) {
      std::string_view line = take_until(rest, '\n');
      if (take_until(line, '\t') != kFrom.substr(1, kFrom.size() - 2)) continue;
      Origin origin;
      for (std::string* part : {&origin.op, &origin.source, &origin.module})
        *part = field(take_until(line, '\t'));
      builder_.begin_origin(std::move(origin));
      while (!line.empty()) {
        const std::string_view name = take_until(line, ' ');
        NodeId id = kInvalidNode;
        if (!name.starts_with('%')) continue;
        std::from_chars(name.data() + 1, name.data() + name.size(), id);
        origin_of_[id] = builder_.origin();
      }
    }
  }

  Result<std::vector<NodeId>> returned(Line& line) {
    std::vector<NodeId> ids;
    while (!line.at_end()) {
      TRY(const NodeId id, reference(line));
      ids.push_back(id);
    }
    return ids;
  }

  Result<NodeId> reference(Line& line) {
    if (!line.take("%")) return line.bad("expected a node like %3");
    TRY(const int64_t id, line.integer());
    if (id < 0 || id >= next_)
      return line.bad("node %" + std::to_string(id) + " is not defined yet");
    return static_cast<NodeId>(id);
  }

  // s0 = symbol 1..4096 hint 32
  Status symbol(Line& line) {
    const std::string expected = "s" + std::to_string(symbols_);
    const std::string_view name = line.word();
    const bool declares = line.take("=") && line.take("symbol");
    int64_t id = 0;
    if (declares && name.starts_with('s') && read_number(name.substr(1), id) && id >= 0 &&
        id < symbols_)
      return line.bad(std::string(name) + " has a range already");
    if (name != expected || !declares)
      return line.bad("expected '" + expected + " = symbol MIN..MAX hint N', a node or 'return'");
    if (next_ != 0) return line.bad("symbols come before nodes");
    std::string_view range = line.word();
    const size_t dots = range.find("..");
    SymbolRange bounds;
    if (dots == std::string_view::npos || !read_number(range.substr(0, dots), bounds.min) ||
        !read_number(range.substr(dots + 2), bounds.max) || bounds.min < 0)
      return line.bad("expected a range MIN..MAX");
    if (bounds.max < bounds.min)
      return line.bad("the range of " + expected + " is empty: " + std::string(range));
    if (!line.take("hint")) return line.bad("expected 'hint N'");
    TRY(const int64_t hint, line.integer());
    if (!line.at_end()) return line.bad("trailing text");
    builder_.symbol(bounds, hint);
    ++symbols_;
    return {};
  }

  // The attribute stands between operands and ':'; its form follows from the op.
  Result<Attr> attribute(Line& line, Op op, DType dtype) {
    switch (op) {
      case Op::kInput: {
        TRY(const int64_t index, line.integer());
        if (index < 0 || index > INT32_MAX) return line.bad("a bad input index");
        return InputAttr{static_cast<int>(index)};
      }
      case Op::kConstant: {
        TRY(const ConstantAttr value, line.value(dtype));
        return value;
      }
      case Op::kView: {
        if (!line.take("strides=")) return line.bad("expected strides=[..]");
        TRY(std::vector<Dim> strides, line.list());
        if (!line.take("offset=")) return line.bad("expected offset=[..]");
        TRY(std::vector<Dim> offset, line.list());
        if (offset.size() != 1) return line.bad("an offset is one number");
        return ViewAttr{std::move(strides), offset[0]};
      }
      case Op::kPad: {
        if (!line.take("low=")) return line.bad("expected low=[..]");
        TRY(std::vector<Dim> low, line.list());
        if (!line.take("high=")) return line.bad("expected high=[..]");
        TRY(std::vector<Dim> high, line.list());
        if (!line.take("value=")) return line.bad("expected value=V");
        TRY(const ConstantAttr value, line.value(dtype));
        return PadAttr{std::move(low), std::move(high), value};
      }
      case Op::kConcat:
      case Op::kScanSum: {
        if (!line.take("axis=")) return line.bad("expected axis=N");
        TRY(const int64_t axis, line.integer());
        if (axis < 0 || axis > 64) return line.bad("a bad axis");
        return AxisAttr{static_cast<int>(axis)};
      }
      case Op::kReduceSum:
      case Op::kReduceMax:
      case Op::kReduceMin:
      case Op::kReduceProd: {
        if (!line.take("axes=")) return line.bad("expected axes=[..]");
        TRY(const std::vector<Dim> list, line.list());
        std::vector<int> axes;
        for (const Dim& axis : list) {
          if (!axis.is_constant() || axis.constant() < 0 || axis.constant() > 64)
            return line.bad("a bad axis");
          axes.push_back(static_cast<int>(axis.constant()));
        }
        return ReduceAttr{std::move(axes)};
      }
      case Op::kConvolution: {
        ConvolutionAttr attr;
        TRY(attr.stride, numbers(line, "stride="));
        TRY(attr.dilation, numbers(line, "dilation="));
        TRY(attr.low, numbers(line, "low="));
        TRY(attr.high, numbers(line, "high="));
        if (!line.take("groups=")) return line.bad("expected groups=N");
        TRY(attr.groups, line.integer());
        return attr;
      }
      case Op::kScatter: {
        if (!line.take("combine=")) return line.bad("expected combine=WAY");
        auto combine = parse_combine(line.word());
        if (!combine) return line.bad(combine.error().message);
        return ScatterAttr{*combine};
      }
      case Op::kArgsort: {
        if (!line.take("descending=")) return line.bad("expected descending=0 or 1");
        TRY(const int64_t descending, line.integer());
        if (descending != 0 && descending != 1) return line.bad("expected descending=0 or 1");
        return SortAttr{descending == 1};
      }
      case Op::kPhilox: {
        if (!line.take("stream=")) return line.bad("expected stream=N");
        TRY(const int64_t stream, line.integer());
        return PhiloxAttr{stream};
      }
      case Op::kCustomCall: {
        if (!line.take("call=")) return line.bad("expected call=DEFINITION");
        auto call = parse_custom_call(line.word());
        if (!call) return line.bad(call.error().message);
        return CustomAttr{std::make_shared<const CustomCall>(*std::move(call))};
      }
      default:
        return Attr{};
    }
  }

  static Result<std::vector<int64_t>> numbers(Line& line, std::string_view name) {
    if (!line.take(name)) return line.bad("expected " + std::string(name) + "[..]");
    TRY(const std::vector<Dim> list, line.list());
    std::vector<int64_t> values;
    for (const Dim& value : list) {
      if (!value.is_constant()) return line.bad("expected numbers");
      values.push_back(value.constant());
    }
    return values;
  }

  // %3 = mul %0 %2 : f32[s0,16]
  Status node(Line& line) {
    TRY(const int64_t id, line.integer());
    if (id != next_) return line.bad("expected node %" + std::to_string(next_));
    if (!line.take("=")) return line.bad("expected '='");
    auto op = parse_op(line.word());
    if (!op) return line.bad(op.error().message);
    Node node;
    node.op = *op;
    for (Line ahead = line; ahead.take("%"); ahead = line) {
      TRY(const NodeId operand, reference(line));
      node.operands.push_back(operand);
    }
    // The dtype stands at the end but decides how a value is read.
    Line after = line;
    TRY_STATUS(skip_to_type(after, line));
    auto dtype = parse_dtype(after.word());
    if (!dtype) return after.bad(dtype.error().message);
    node.dtype = *dtype;
    TRY(node.shape, after.list());
    if (!after.at_end()) return after.bad("trailing text");
    TRY(node.attr, attribute(line, node.op, node.dtype));
    if (!line.take(":")) return line.bad("expected ':'");
    const auto origin = origin_of_.find(static_cast<NodeId>(next_));
    builder_.set_origin(origin == origin_of_.end() ? kNoOrigin : origin->second);
    const NodeId made = builder_.add(std::move(node));
    if (const Error* error = builder_.error()) return line.bad(error->message);
    if (made != next_) return line.bad("repeats node %" + std::to_string(made));
    ++next_;
    return {};
  }

  static Status skip_to_type(Line& after, const Line& line) {
    while (!after.at_end()) {
      if (after.take(":")) return {};
      if (after.word().empty() && !after.take("=") && !after.list()) break;
    }
    return line.bad("expected ': DTYPE[SIZES]'");
  }

  GraphBuilder builder_;
  std::unordered_map<NodeId, OriginId> origin_of_;
  int64_t next_ = 0;
  int symbols_ = 0;
};

}  // namespace

std::string print(const Graph& graph) {
  std::string text = "kiln.graph 1\n";
  for (size_t i = 0; i < graph.symbols().size(); ++i) {
    const Symbol& symbol = graph.symbols()[i];
    text += "s" + std::to_string(i) + " = symbol " + std::to_string(symbol.range.min) + ".." +
            std::to_string(symbol.range.max) + " hint " + std::to_string(symbol.hint) + "\n";
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    text += "%" + std::to_string(id) + " = " + std::string(to_string(node.op));
    for (NodeId operand : node.operands) text += " %" + std::to_string(operand);
    text += std::visit(AttrPrinter{node.dtype}, node.attr);
    text += " : " + std::string(to_string(node.dtype)) + to_string(node.shape) + "\n";
  }
  text += "return";
  for (NodeId id : graph.outputs()) text += " %" + std::to_string(id);
  return text + "\n";
}

std::string print_with_origins(const Graph& graph) {
  std::map<OriginId, std::string> nodes;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (const OriginId origin = graph.origin_of(id); origin != kNoOrigin)
      nodes[origin] += (nodes[origin].empty() ? "%" : " %") + std::to_string(id);
  std::string text = print(graph);
  for (const auto& [id, named] : nodes) {
    const Origin& origin = graph.origins()[static_cast<size_t>(id)];
    text.append(kFrom.substr(1)).append(field(origin.op)).append("\t");
    text.append(field(origin.source)).append("\t").append(field(origin.module)).append("\t");
    text.append(named).append("\n");
  }
  return text;
}

std::string_view without_origins(std::string_view text) {
  const size_t end = text.find(kFrom);
  return end == std::string_view::npos ? text : text.substr(0, end + 1);
}

Result<Graph> parse_graph(std::string_view text) {
  return Parser().run(text);
}

}  // namespace kiln
