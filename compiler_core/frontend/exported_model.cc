#include "compiler_core/frontend/exported_model.h"

#include <simdjson.h>

#include <array>
#include <cmath>
#include <limits>
#include <unordered_set>

namespace kiln {
namespace {

namespace dom = simdjson::dom;
using std::string_view;

tl::unexpected<Error> invalid(std::string message) {
  return fail(Code::kInvalidArgument, std::move(message));
}

// Adds where the error happened, outermost first: "graph: node 12 (aten.add.Tensor): ...".
template <class T>
Result<T> within(Result<T> result, const std::string& context) {
  if (!result) return fail(result.error().within(context));
  return result;
}

Result<dom::object> object_in(dom::object from, string_view key) {
  dom::object value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid("'" + std::string(key) + "' is missing or no object");
  return value;
}
Result<dom::array> array_in(dom::object from, string_view key) {
  dom::array value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid("'" + std::string(key) + "' is missing or no list");
  return value;
}
Result<string_view> string_in(dom::object from, string_view key) {
  string_view value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid("'" + std::string(key) + "' is missing or no string");
  return value;
}
Result<int64_t> integer_in(dom::object from, string_view key) {
  int64_t value = 0;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid("'" + std::string(key) + "' is missing or no integer");
  return value;
}
Result<dom::object> as_object(dom::element element) {
  dom::object value;
  if (element.get(value) != simdjson::SUCCESS) return invalid("not an object");
  return value;
}
// The schema's unions are objects of one member whose key names the form.
Result<dom::key_value_pair> as_union(dom::element element) {
  TRY(const dom::object object, as_object(element));
  if (object.size() != 1) return invalid("not an object of one member");
  return *object.begin();
}

// json.dumps cannot write these as numbers.
Result<double> as_double(dom::element element) {
  double value = 0;
  if (element.get(value) == simdjson::SUCCESS) return value;
  string_view text;
  if (element.get(text) == simdjson::SUCCESS) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "Infinity") return kInfinity;
    if (text == "-Infinity") return -kInfinity;
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  return invalid("not a number");
}

// Everything but the tree itself that turns JSON into values: the table of symbols grows as their
// names are met.
class ModelParser {
 public:
  explicit ModelParser(ExportedModel& model) : model_(model) {}

  Status model(dom::object root) {
    TRY(const dom::object version, object_in(root, "schema_version"));
    TRY(const int64_t major, integer_in(version, "major"));
    if (major != kExportSchemaMajor)
      return fail(Code::kInvalidArgument,
                  "schema version " + std::to_string(major) + " is not " +
                      std::to_string(kExportSchemaMajor) +
                      ", the one Kiln reads; export again with a PyTorch that writes it (2.8 to "
                      "2.15)");
    if (string_view version_text; root["torch_version"].get(version_text) == simdjson::SUCCESS)
      model_.torch_version = parse_torch_version(version_text);
    if (root["range_constraints"].get(ranges_) != simdjson::SUCCESS)
      return invalid("'range_constraints' is missing or no object");
    TRY(const dom::object module, object_in(root, "graph_module"));
    TRY(const dom::object graph, object_in(module, "graph"));
    TRY_STATUS(tensors(graph, model_.tensors));
    TRY_STATUS(integers(graph));
    TRY_STATUS(nodes(graph, model_.nodes));
    TRY(const dom::object signature, object_in(module, "signature"));
    TRY_STATUS(input_specs(signature));
    return output_specs(signature);
  }

 private:
  // A size is {"as_int": 4} or {"as_expr": {"expr_str": ..., "hint": {"as_int": 32} or null}}.
  Result<Dim> size(dom::element element) {
    TRY(const dom::key_value_pair form, as_union(element));
    int64_t value = 0;
    if (form.key == "as_int" && form.value.get(value) == simdjson::SUCCESS) return Dim(value);
    if (form.key == "as_expr") return expression(form.value);
    return invalid("'" + std::string(form.key) + "' is no form of a size");
  }

  Result<Dim> expression(dom::element element) {
    TRY(const dom::object object, as_object(element));
    TRY(const string_view text, string_in(object, "expr_str"));
    int64_t hint = 0;
    if (object["hint"]["as_int"].get(hint) != simdjson::SUCCESS) hint = 0;
    return parse_symbolic_size(text, [&](string_view name) -> Result<Dim> {
      // The hint is the whole expression's; it is the symbol's when that is all there is.
      const bool alone = text.starts_with("Symbol(");
      return symbol(name, alone && hint > 0 ? hint : 0);
    });
  }

  Result<Dim> symbol(string_view name, int64_t hint) {
    const auto [known, is_new] =
        symbol_ids_.try_emplace(std::string(name), static_cast<SymbolId>(model_.symbols.size()));
    if (is_new) {
      TRY(const SymbolRange range, range_of(name));
      model_.symbols.push_back({range, hint});
      model_.symbol_names.emplace_back(name);
    }
    Symbol& entry = model_.symbols[static_cast<size_t>(known->second)];
    if (entry.hint == 0) entry.hint = hint;
    return Dim::symbol(known->second);
  }

  Result<SymbolRange> range_of(string_view name) const {
    SymbolRange range;
    // All that is said of it holds, should it be said twice.
    for (const dom::key_value_pair entry : ranges_) {
      dom::object bounds;
      if (entry.key != name || entry.value.get(bounds) != simdjson::SUCCESS) continue;
      int64_t bound = 0;
      if (bounds["min_val"].get(bound) == simdjson::SUCCESS) range.min = std::max(range.min, bound);
      if (bounds["max_val"].get(bound) == simdjson::SUCCESS) range.max = std::min(range.max, bound);
    }
    if (range.max < range.min)
      return invalid("range_constraints: the range of '" + std::string(name) +
                     "' is empty: at least " + std::to_string(range.min) + " and at most " +
                     std::to_string(range.max) + "; export with constraints that some size meets");
    return range;
  }

  Result<std::vector<Dim>> sizes(dom::object from, string_view key) {
    TRY(const dom::array list, array_in(from, key));
    std::vector<Dim> dims;
    dims.reserve(list.size());
    for (const dom::element element : list) {
      TRY(Dim dim, within(size(element), "'" + std::string(key) + "'"));
      dims.push_back(std::move(dim));
    }
    return dims;
  }

  // An expression that is not covered is refused where the tensor is used, which knows the line of
  // the user's source.
  template <class T>
  static Status covered(Result<T> value, T& to, std::string& refusal) {
    if (value)
      to = *std::move(value);
    else if (value.error().code == Code::kUnsupported)
      refusal = value.error().message;
    else
      return fail(std::move(value).error());
    return {};
  }

  Result<DeclaredTensor> tensor(dom::element element) {
    TRY(const dom::object object, as_object(element));
    DeclaredTensor result;
    TRY(result.dtype.code, integer_in(object, "dtype"));
    TRY(const dom::array declared, array_in(object, "sizes"));
    result.has_computed_size = std::any_of(declared.begin(), declared.end(), is_computed);
    TRY_STATUS(covered(sizes(object, "sizes"), result.shape, result.refusal));
    // Where a tensor in between lies is the compiler's business: torch writes strides such as
    // Min(32, 32*s0) there.
    TRY_STATUS(covered(sizes(object, "strides"), result.strides, result.layout_refusal));
    if (result.refusal.empty() && result.layout_refusal.empty() &&
        result.strides.size() != result.shape.size())
      return invalid("'strides' and 'sizes' differ in length");
    dom::element offset;
    if (object["storage_offset"].get(offset) != simdjson::SUCCESS)
      return invalid("'storage_offset' is missing");
    // Only whether it is 0 matters. The symbols of an expression may be nobody's size: a place that
    // the program computes.
    if (offset["as_expr"].error() == simdjson::SUCCESS)
      result.storage_offset = Dim(1);
    else
      TRY_STATUS(covered(size(offset), result.storage_offset, result.layout_refusal));
    constexpr int64_t kStrided = 7;
    TRY(const int64_t layout, integer_in(object, "layout"));
    result.strided = layout == kStrided;
    return result;
  }

  Status tensors(dom::object graph, DeclaredTensors& to) {
    TRY(const dom::object values, object_in(graph, "tensor_values"));
    // First those of the inputs, so that symbols are numbered as inputs bring them.
    TRY(const dom::array inputs, array_in(graph, "inputs"));
    std::unordered_map<string_view, dom::element> by_name;
    by_name.reserve(values.size());
    to.reserve(values.size());
    for (const dom::key_value_pair entry : values) by_name.emplace(entry.key, entry.value);
    for (const dom::element input : inputs) {
      string_view name;
      if (input["as_tensor"]["name"].get(name) != simdjson::SUCCESS) continue;
      const auto known = by_name.find(name);
      if (known == by_name.end())
        return invalid("graph: input '" + std::string(name) + "' has no entry in tensor_values");
      TRY_STATUS(declare(name, known->second, to));
    }
    for (const auto& [name, element] : by_name) TRY_STATUS(declare(name, element, to));
    return {};
  }

  Status declare(string_view name, dom::element element, DeclaredTensors& to) {
    if (to.contains(name)) return {};
    TRY(DeclaredTensor declared, within(tensor(element), "tensor '" + std::string(name) + "'"));
    to.emplace(name, std::move(declared));
    return {};
  }

  Status integers(dom::object graph) {
    dom::object values;
    if (graph["sym_int_values"].get(values) != simdjson::SUCCESS) return {};
    for (const dom::key_value_pair entry : values) {
      if (is_computed(entry.value)) {
        computed_.insert(entry.key);
        integers_.insert_or_assign(
            entry.key, fail(Code::kUnsupported,
                            "integer '" + std::string(entry.key) +
                                "' is computed while the program runs: keep it a tensor, or make "
                                "it an input's size"));
        continue;
      }
      Result<Dim> value = within(size(entry.value), "integer '" + std::string(entry.key) + "'");
      if (!value && value.error().code != Code::kUnsupported) return fail(std::move(value).error());
      integers_.insert_or_assign(entry.key, std::move(value));
    }
    return {};
  }

  // Whether it has a symbol that no size of an input is: PyTorch calls these u0, u1, ..., and zuf0,
  // zuf1, ... those of real numbers.
  static bool is_computed(dom::element size) {
    string_view text;
    return size["as_expr"]["expr_str"].get(text) == simdjson::SUCCESS &&
           (text.find("Symbol('u") != string_view::npos ||
            text.find("Symbol('zuf") != string_view::npos);
  }
  Result<Argument> integer_argument(dom::element element) const {
    string_view name;
    if (element["as_name"].get(name) == simdjson::SUCCESS && computed_.contains(name))
      return Argument(NumberName{name});
    return wrap(named_integer(element));
  }

  // {"as_name": "sym_size_int"} or {"as_int": 2}.
  Result<Dim> named_integer(dom::element element) const {
    TRY(const dom::key_value_pair form, as_union(element));
    int64_t value = 0;
    if (form.key == "as_int" && form.value.get(value) == simdjson::SUCCESS) return Dim(value);
    string_view name;
    if (form.key != "as_name" || form.value.get(name) != simdjson::SUCCESS)
      return invalid("not a symbolic integer");
    const auto known = integers_.find(name);
    if (known == integers_.end())
      return invalid("integer '" + std::string(name) + "' has no entry in sym_int_values");
    return known->second;
  }

  static Result<TensorName> tensor_name(dom::element element) {
    TRY(const dom::object object, as_object(element));
    TRY(const string_view name, string_in(object, "name"));
    if (name.empty()) return invalid("a tensor's name is empty");
    return TensorName{name};
  }
  // {"as_tensor": {"name": ...}} or {"as_none": true}.
  static Result<TensorName> optional_tensor_name(dom::element element) {
    TRY(const dom::key_value_pair form, as_union(element));
    if (form.key == "as_none") return TensorName{};
    if (form.key != "as_tensor") return invalid("not an optional tensor");
    return tensor_name(form.value);
  }

  // A list in which a node's number stands keeps its items: that number may be known later on.
  Result<Argument> integer_list(dom::element element) const {
    Result<Argument> all =
        list<Dim>(element, [this](dom::element each) { return named_integer(each); });
    if (all || all.error().code != Code::kUnsupported) return all;
    UncoveredSize uncovered{std::move(all).error().message, {}};
    for (const dom::element each : dom::array(element)) {
      const Result<Argument> item = integer_argument(each);
      if (const auto* size = item ? std::get_if<Dim>(&*item) : nullptr)
        uncovered.items.emplace_back(*size);
      else if (const auto* number = item ? std::get_if<NumberName>(&*item) : nullptr)
        uncovered.items.emplace_back(*number);
      else
        return Argument(UncoveredSize{std::move(uncovered.why), {}});
    }
    return Argument(std::move(uncovered));
  }

  template <class Item, class Read>
  static Result<Argument> list(dom::element element, Read read) {
    dom::array array;
    if (element.get(array) != simdjson::SUCCESS) return invalid("not a list");
    std::vector<Item> items;
    items.reserve(array.size());
    for (const dom::element each : array) {
      TRY(Item item, read(each));
      items.push_back(std::move(item));
    }
    return Argument(std::move(items));
  }
  // A size that is not covered is an error only where it is used.
  static Result<Argument> or_uncovered(Result<Argument> argument) {
    if (!argument && argument.error().code == Code::kUnsupported)
      return Argument(UncoveredSize{std::move(argument).error().message, {}});
    return argument;
  }
  // {"as_name": ...} or {"as_float": 0.5}.
  template <class T>
  static Result<Argument> symbolic_or(dom::element element, string_view kind, string_view form) {
    TRY(const dom::key_value_pair value, as_union(element));
    string_view name;
    if (value.key == "as_name" && value.value.get(name) == simdjson::SUCCESS)
      return Argument(NumberName{name});
    if (value.key != form) return Argument(OtherArgument{kind});
    if constexpr (std::is_same_v<T, bool>)
      return wrap(plain<bool>(value.value));
    else
      return wrap(as_double(value.value));
  }

  template <class T>
  static Result<T> plain(dom::element element) {
    T value{};
    if (element.get(value) != simdjson::SUCCESS) return invalid("a value has the wrong type");
    return value;
  }
  static Result<Dim> plain_integer(dom::element element) {
    TRY(const int64_t value, plain<int64_t>(element));
    return Dim(value);
  }
  template <class T>
  static Result<Argument> wrap(Result<T> value) {
    if (!value) return fail(std::move(value).error());
    return Argument(*std::move(value));
  }

  static Result<Argument> complex_number(dom::element element) {
    TRY(const dom::object object, as_object(element));
    std::array<double, 2> parts{};
    for (const size_t i : {0, 1}) {
      dom::element part;
      if (object[i == 0 ? "real" : "imag"].get(part) != simdjson::SUCCESS)
        return invalid("a complex number lacks a part");
      TRY(parts[i], as_double(part));
    }
    return Argument(std::complex<double>(parts[0], parts[1]));
  }

  Result<Argument> argument(dom::element element) {
    TRY(const dom::key_value_pair form, as_union(element));
    const string_view kind = form.key;
    const dom::element value = form.value;
    if (kind == "as_none") return Argument();
    if (kind == "as_tensor") return wrap(tensor_name(value));
    if (kind == "as_optional_tensor") return wrap(optional_tensor_name(value));
    if (kind == "as_tensors") return list<TensorName>(value, tensor_name);
    if (kind == "as_optional_tensors") return list<TensorName>(value, optional_tensor_name);
    if (kind == "as_int") return wrap(plain_integer(value));
    if (kind == "as_ints") return list<Dim>(value, plain_integer);
    if (kind == "as_sym_int") return or_uncovered(integer_argument(value));
    if (kind == "as_sym_ints") return integer_list(value);
    if (kind == "as_sym_float") return symbolic_or<double>(value, kind, "as_float");
    if (kind == "as_sym_bool") return symbolic_or<bool>(value, kind, "as_bool");
    if (kind == "as_bools") return list<bool>(value, plain<bool>);
    if (kind == "as_graph") return subgraph(value);
    if (kind == "as_float") return wrap(as_double(value));
    if (kind == "as_complex") return complex_number(value);
    if (kind == "as_floats") return list<double>(value, as_double);
    if (kind == "as_bool") return wrap(plain<bool>(value));
    if (kind == "as_string" || kind == "as_operator") return wrap(plain<string_view>(value));
    if (kind == "as_scalar_type") {
      TRY(const int64_t code, plain<int64_t>(value));
      return Argument(ScalarTypeCode{code});
    }
    return Argument(OtherArgument{kind});
  }

  Result<ExportedNode> node(dom::element element) {
    TRY(const dom::object object, as_object(element));
    ExportedNode result;
    TRY(result.target, string_in(object, "target"));
    TRY(const dom::array inputs, array_in(object, "inputs"));
    result.inputs.reserve(inputs.size());
    for (const dom::element input : inputs) {
      TRY(const dom::object named, as_object(input));
      NamedArgument entry;
      TRY(entry.name, string_in(named, "name"));
      dom::element value;
      if (named["arg"].get(value) != simdjson::SUCCESS) return invalid("an input has no 'arg'");
      TRY(entry.value, within(argument(value), "argument '" + std::string(entry.name) + "'"));
      result.inputs.push_back(std::move(entry));
    }
    TRY(const dom::array outputs, array_in(object, "outputs"));
    for (const dom::element output : outputs) {
      TRY(Argument entry, within(argument(output), "output"));
      result.outputs.push_back(std::move(entry));
    }
    TRY_STATUS(unwrap_out_dtype(result));
    if (object["metadata"]["stack_trace"].get(result.stack_trace) != simdjson::SUCCESS)
      result.stack_trace = {};
    if (object["metadata"]["nn_module_stack"].get(result.module_stack) != simdjson::SUCCESS)
      result.module_stack = {};
    return result;
  }

  Result<std::vector<Argument>> arguments(dom::object graph, string_view key) {
    TRY(const dom::array list, array_in(graph, key));
    std::vector<Argument> result;
    for (const dom::element each : list) {
      TRY(Argument value, within(argument(each), "'" + std::string(key) + "'"));
      result.push_back(std::move(value));
    }
    return result;
  }

  // {"name": "true_graph_0", "graph": {...}}. It names integers of its own.
  Result<Argument> subgraph(dom::element element) {
    constexpr int kMaxNesting = 16;
    TRY(const dom::object object, as_object(element));
    TRY(const dom::object graph, object_in(object, "graph"));
    if (++nesting_ > kMaxNesting) return invalid("graphs are nested too deeply");
    Integers outer;
    std::swap(outer, integers_);
    auto result = std::make_unique<ExportedGraph>();
    TRY_STATUS(tensors(graph, result->tensors));
    TRY_STATUS(integers(graph));
    TRY(result->inputs, arguments(graph, "inputs"));
    TRY_STATUS(nodes(graph, result->nodes));
    TRY(result->outputs, arguments(graph, "outputs"));
    std::swap(outer, integers_);
    --nesting_;
    model_.subgraphs.push_back(std::move(result));
    return Argument(model_.subgraphs.back().get());
  }

  Status nodes(dom::object graph, std::vector<ExportedNode>& to) {
    TRY(const dom::array list, array_in(graph, "nodes"));
    to.reserve(list.size());
    for (const dom::element element : list) {
      Result<ExportedNode> parsed = node(element);
      if (!parsed) {
        string_view target = "?";
        if (element["target"].get(target) != simdjson::SUCCESS) target = "?";
        return fail(parsed.error().within("graph: node " + std::to_string(to.size()) + " (" +
                                          std::string(target.substr(0, 80)) + ")"));
      }
      to.push_back(*std::move(parsed));
    }
    return {};
  }

  // {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
  // {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}.
  Status input_specs(dom::object signature) {
    TRY(const dom::array list, array_in(signature, "input_specs"));
    for (const dom::element element : list) {
      TRY(const dom::key_value_pair form, within(as_union(element), "signature: input_specs"));
      InputSpec spec{form.key, {}, {}};
      if (form.value["arg"]["as_tensor"]["name"].get(spec.tensor) != simdjson::SUCCESS &&
          form.value["arg"]["name"].get(spec.tensor) != simdjson::SUCCESS)
        spec.tensor = {};
      spec.user_name = spec.tensor;
      for (const char* key : {"parameter_name", "buffer_name", "tensor_constant_name"})
        if (string_view name; form.value[key].get(name) == simdjson::SUCCESS) spec.user_name = name;
      model_.inputs.push_back(spec);
    }
    return {};
  }

  Status output_specs(dom::object signature) {
    TRY(const dom::array list, array_in(signature, "output_specs"));
    for (const dom::element element : list) {
      TRY(const dom::key_value_pair form, within(as_union(element), "signature: output_specs"));
      OutputSpec spec{form.key, {}, {}, {}, false};
      if (form.value["arg"]["as_tensor"]["name"].get(spec.tensor) != simdjson::SUCCESS &&
          form.value["arg"]["name"].get(spec.tensor) != simdjson::SUCCESS)
        spec.tensor = {};
      for (const char* key : {"parameter_name", "buffer_name", "user_input_name"})
        if (string_view name; form.value[key].get(name) == simdjson::SUCCESS) spec.target = name;
      dom::element none;
      spec.is_fixed = form.value["arg"]["as_none"].get(none) == simdjson::SUCCESS;
      if (dom::element value; spec.tensor.empty() && !spec.is_fixed &&
                              form.value["arg"].get(value) == simdjson::SUCCESS) {
        TRY(spec.number, within(argument(value), "signature: output_specs"));
        spec.is_fixed = std::holds_alternative<string_view>(spec.number);
      }
      model_.outputs.push_back(spec);
    }
    return {};
  }

  using Integers = std::unordered_map<string_view, Result<Dim>>;

  ExportedModel& model_;
  dom::object ranges_;
  Integers integers_;                         // the symbolic integers that have names
  std::unordered_set<string_view> computed_;  // those that are no sizes of inputs
  int nesting_ = 0;                           // of subgraphs
  std::unordered_map<std::string, SymbolId> symbol_ids_;
};

Result<dom::object> parse_object(dom::parser& parser, const std::string& json) {
  dom::element root;
  if (const auto error = parser.parse(json).get(root); error != simdjson::SUCCESS)
    return invalid(std::string("not valid JSON: ") + simdjson::error_message(error));
  return as_object(root);
}

}  // namespace

size_t json_padding() {
  return simdjson::SIMDJSON_PADDING;
}

Result<ExportedModel> parse_exported_model(const std::string& json) {
  ExportedModel model;
  const auto parser = std::make_shared<dom::parser>();
  model.text = parser;
  TRY(const dom::object root, parse_object(*parser, json));
  TRY_STATUS(ModelParser(model).model(root));
  return model;
}

}  // namespace kiln
