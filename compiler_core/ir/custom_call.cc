#include "compiler_core/ir/custom_call.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "compiler_core/base/signature.h"
#include "compiler_core/base/text.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/custom_source.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

constexpr size_t kMaxName = 128;
constexpr size_t kMaxSource = size_t{1} << 20;
constexpr size_t kMaxDecisions = 16;
constexpr size_t kMaxValues = 64;

// A C identifier that does not begin with Kiln's prefix.
bool is_free_name(std::string_view name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), fits) &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0 && !name.starts_with("KILN_") &&
         !name.starts_with("kiln_");
}

bool is_call_name(std::string_view name) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), fits);
}

Status verify_decisions(const CustomKernel& kernel) {
  if (kernel.decisions.size() > kMaxDecisions)
    return fail(Code::kInvalidArgument, "more than 16 decisions");
  for (auto it = kernel.decisions.begin(); it != kernel.decisions.end(); ++it) {
    if (!is_free_name(it->name) || it->name == kernel.function)
      return fail(Code::kInvalidArgument,
                  "'" + it->name.substr(0, 64) + "' is not a name for a decision");
    if (it->values.empty() || it->values.size() > kMaxValues)
      return fail(Code::kInvalidArgument, "decision " + it->name + " needs 1 to 64 values");
    for (auto other = kernel.decisions.begin(); other != it; ++other)
      if (other->name == it->name)
        return fail(Code::kInvalidArgument, "decision " + it->name + " is declared twice");
  }
  return {};
}

Status verify_kernel(const CustomKernel& kernel) {
  if (kernel.backend != "cpu" && kernel.backend != "cuda")
    return fail(Code::kInvalidArgument,
                "'" + kernel.backend.substr(0, 64) + "' is no backend: cpu and cuda are");
  if (!is_free_name(kernel.function))
    return fail(Code::kInvalidArgument,
                "'" + kernel.function.substr(0, 64) + "' is not a name for a function");
  if (kernel.source.empty() || kernel.source.size() > kMaxSource)
    return fail(Code::kInvalidArgument, "its source is empty or larger than 1 MiB");
  TRY_STATUS(verify_custom_source(kernel.source, kernel.backend));
  if (kernel.items < 0) return fail(Code::kInvalidArgument, "its items are negative");
  TRY_STATUS(verify_decisions(kernel));
  std::vector<int64_t> first;
  for (const CustomDecision& decision : kernel.decisions) first.push_back(decision.values[0]);
  for (const std::string* product : {&kernel.block, &kernel.threads, &kernel.shared_bytes})
    TRY_STATUS(evaluate_product(kernel, first, *product).map([](int64_t) {}));
  return {};
}

Status verify_reference(const Graph& reference) {
  if (!reference.symbols().empty())
    return fail(Code::kInvalidArgument, "its reference has dynamic sizes");
  if (reference.outputs().size() != 1 || reference.inputs().empty())
    return fail(Code::kInvalidArgument, "its reference needs operands and one result");
  for (const Node& node : reference.nodes())
    if (node.op == Op::kCustomCall)
      return fail(Code::kInvalidArgument, "its reference calls " +
                                              std::get<CustomAttr>(node.attr).call->name +
                                              ": it may have core ops only");
  return {};
}

// A list of fields, each as its length in bytes, a colon and its bytes; the whole in hex.
void put(std::string& fields, std::string_view field) {
  fields += std::to_string(field.size()) + ":" + std::string(field);
}

tl::unexpected<Error> malformed() {
  return fail(Code::kInvalidArgument, "a custom call's definition is malformed");
}

Result<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return malformed();
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(&hex[i], &hex[i] + 2, value, 16);
    if (error != std::errc() || end != &hex[i] + 2) return malformed();
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// Takes fields off the front; the first that is missing sticks.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}
  std::string_view text() {
    size_t size = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    const size_t digits = static_cast<size_t>(end - rest_.data());
    ok_ = ok_ && error == std::errc() && digits < rest_.size() && rest_[digits] == ':' &&
          size <= rest_.size() - digits - 1;
    if (!ok_) return {};
    const std::string_view field = rest_.substr(digits + 1, size);
    rest_.remove_prefix(digits + 1 + size);
    return field;
  }
  int64_t number() {
    const std::string_view field = text();
    int64_t value = 0;
    ok_ = read_number(field, value) && ok_;
    return ok_ ? value : 0;
  }
  // How many items follow: never more than there are bytes.
  size_t count() {
    const int64_t value = number();
    ok_ = ok_ && value >= 0 && value <= static_cast<int64_t>(rest_.size());
    return ok_ ? static_cast<size_t>(value) : 0;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

const CustomKernel* CustomCall::kernel(std::string_view backend) const {
  const auto it = std::find_if(kernels.begin(), kernels.end(),
                               [&](const CustomKernel& k) { return k.backend == backend; });
  return it == kernels.end() ? nullptr : &*it;
}

Status verify_custom_call(const CustomCall& call) {
  if (!is_call_name(call.name))
    return fail(Code::kInvalidArgument,
                "'" + call.name.substr(0, 64) + "' is not a name for a custom call");
  const auto within = [&](Status status, std::string_view what) -> Status {
    if (status) return status;
    return fail(Code::kInvalidArgument,
                "custom call " + call.name + std::string(what) + ": " + status.error().message);
  };
  TRY_STATUS(within(verify_reference(call.reference), ""));
  for (const CustomKernel& kernel : call.kernels) {
    TRY_STATUS(within(verify_kernel(kernel), ", its " + kernel.backend.substr(0, 64) + " kernel"));
    if (call.kernel(kernel.backend) != &kernel)
      return fail(Code::kInvalidArgument,
                  "custom call " + call.name + " has two kernels for " + kernel.backend);
  }
  return {};
}

Result<int64_t> evaluate_product(const CustomKernel& kernel, std::span<const int64_t> values,
                                 std::string_view product) {
  const auto bad = [&] {
    return fail(Code::kInvalidArgument, "'" + std::string(product.substr(0, 64)) +
                                            "' is not a product of numbers and decisions");
  };
  int64_t result = 1;
  for (std::string_view rest = product;;) {
    const size_t star = rest.find('*');
    const std::string_view factor = rest.substr(0, star);
    int64_t value = 0;
    if (!read_number(factor, value)) {
      const auto named = [&](const CustomDecision& d) { return d.name == factor; };
      const auto it = std::find_if(kernel.decisions.begin(), kernel.decisions.end(), named);
      if (it == kernel.decisions.end()) return bad();
      value = values[static_cast<size_t>(it - kernel.decisions.begin())];
    }
    if (value < 0 || __builtin_mul_overflow(result, value, &result)) return bad();
    if (star == std::string_view::npos) return result;
    rest.remove_prefix(star + 1);
  }
}

bool has_custom_calls(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.op == Op::kCustomCall; });
}

Result<Graph> inline_custom_calls(const Graph& graph) {
  GraphBuilder builder;
  for (const Symbol& symbol : graph.symbols()) builder.symbol(symbol.range, symbol.hint);
  std::vector<NodeId> map;
  const auto copy = [&](Node node, const std::vector<NodeId>& names) {
    for (NodeId& operand : node.operands) operand = names[static_cast<size_t>(operand)];
    return builder.add(std::move(node));
  };
  for (const Node& node : graph.nodes()) {
    if (!builder.ok()) break;
    if (node.op != Op::kCustomCall) {
      map.push_back(copy(node, map));
      continue;
    }
    const Graph& reference = std::get<CustomAttr>(node.attr).call->reference;
    std::vector<NodeId> inner;
    for (const Node& part : reference.nodes()) {
      if (!builder.ok()) break;
      const auto* input = std::get_if<InputAttr>(&part.attr);
      inner.push_back(
          input == nullptr
              ? copy(part, inner)
              : map[static_cast<size_t>(node.operands[static_cast<size_t>(input->index)])]);
    }
    if (builder.ok()) map.push_back(inner[static_cast<size_t>(reference.outputs()[0])]);
  }
  std::vector<NodeId> outputs;
  if (builder.ok())
    for (NodeId id : graph.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
  return builder.finish(std::move(outputs));
}

std::string print_custom_call(const CustomCall& call) {
  std::string fields;
  put(fields, call.name);
  put(fields, print(call.reference));
  put(fields, std::to_string(call.kernels.size()));
  for (const CustomKernel& kernel : call.kernels) {
    for (const std::string* field : {&kernel.backend, &kernel.source, &kernel.function,
                                     &kernel.block, &kernel.threads, &kernel.shared_bytes})
      put(fields, *field);
    put(fields, std::to_string(kernel.items));
    put(fields, std::to_string(kernel.decisions.size()));
    for (const CustomDecision& decision : kernel.decisions) {
      put(fields, decision.name);
      put(fields, std::to_string(decision.values.size()));
      for (const int64_t value : decision.values) put(fields, std::to_string(value));
    }
  }
  return to_hex(fields);
}

Result<CustomCall> parse_custom_call(std::string_view word) {
  TRY(const std::string bytes, from_hex(word));
  Fields fields(bytes);
  CustomCall call;
  call.name = fields.text();
  const std::string_view reference = fields.text();
  call.kernels.resize(fields.count());
  for (CustomKernel& kernel : call.kernels) {
    for (std::string* field : {&kernel.backend, &kernel.source, &kernel.function, &kernel.block,
                               &kernel.threads, &kernel.shared_bytes})
      *field = fields.text();
    kernel.items = fields.number();
    kernel.decisions.resize(fields.count());
    for (CustomDecision& decision : kernel.decisions) {
      decision.name = fields.text();
      decision.values.resize(fields.count());
      for (int64_t& value : decision.values) value = fields.number();
    }
  }
  if (!fields.done()) return malformed();
  TRY(call.reference, parse_graph(reference));
  TRY_STATUS(verify_custom_call(call));
  return call;
}

}  // namespace kiln
