#include "tests/support/exported_variants.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace kiln::testing {
namespace {

using nlohmann::ordered_json;

ordered_json& graph_of(ordered_json& model) {
  return model["graph_module"]["graph"];
}
ordered_json& signature_of(ordered_json& model) {
  return model["graph_module"]["signature"];
}

// Calls `change` with every value of the document, parents first.
void for_each(ordered_json& value, const std::function<void(ordered_json&)>& change) {
  change(value);
  if (value.is_structured())
    for (auto& child : value) for_each(child, change);
}

// The tensors that a list of arguments names, wherever they stand in it.
std::vector<std::string> tensor_names(ordered_json arguments) {
  std::vector<std::string> names;
  for_each(arguments, [&](ordered_json& value) {
    if (!value.is_object()) return;
    for (const char* form : {"as_tensor"})
      if (value.contains(form)) names.push_back(value[form]["name"]);
    if (value.contains("as_tensors"))
      for (const auto& tensor : value["as_tensors"]) names.push_back(tensor["name"]);
  });
  return names;
}

std::string parameter_kind(const ordered_json& spec) {
  for (const char* kind : {"parameter", "buffer", "tensor_constant"})
    if (spec.contains(kind)) return kind;
  return "";
}

ordered_json one_input(const std::string& name, const std::string& form, ordered_json value) {
  return {{"name", name}, {"arg", {{form, std::move(value)}}}, {"kind", 1}};
}

// A node that gives `from` once more under the name `to`.
ordered_json copy_node(const std::string& target, const std::string& from, const std::string& to,
                       const ordered_json& sizes) {
  ordered_json inputs = ordered_json::array();
  inputs.push_back(one_input("self", "as_tensor", {{"name", from}}));
  if (!sizes.is_null()) inputs.push_back(one_input("size", "as_ints", sizes));
  ordered_json output = {{"as_tensor", {{"name", to}}}};
  return {{"target", "torch.ops." + target},
          {"inputs", std::move(inputs)},
          {"outputs", ordered_json::array({std::move(output)})},
          {"metadata", ordered_json::object()}};
}

// Adds a chain of copies of `name`; the last one's name. Symbolic sizes: only what needs no sizes.
std::string add_copies(ordered_json& graph, ordered_json& nodes, const std::string& name) {
  auto& tensors = graph["tensor_values"];
  const ordered_json type = tensors[name];
  ordered_json sizes = ordered_json::array();
  for (const auto& size : type["sizes"]) {
    if (!size.contains("as_int")) sizes = nullptr;
    if (sizes.is_null()) break;
    sizes.push_back(size["as_int"]);
  }
  std::string last = name;
  for (const char* target :
       {"aten.alias.default", "aten.clone.default", "aten.view.default", "aten.expand.default"}) {
    const bool sized = std::string(target).find("view") != std::string::npos ||
                       std::string(target).find("expand") != std::string::npos;
    if (sized && sizes.is_null()) continue;
    const std::string next = last + "_again";
    tensors[next] = type;
    nodes.push_back(copy_node(target, last, next, sized ? sizes : ordered_json()));
    last = next;
  }
  return last;
}

void replace_tensors(ordered_json& value, const std::map<std::string, std::string>& names) {
  for_each(value, [&](ordered_json& each) {
    if (!each.is_object()) return;
    const auto rename = [&names](ordered_json& tensor) {
      const auto found = names.find(tensor["name"].get<std::string>());
      if (found != names.end()) tensor["name"] = found->second;
    };
    if (each.contains("as_tensor")) rename(each["as_tensor"]);
    if (each.contains("as_tensors"))
      for (auto& tensor : each["as_tensors"]) rename(tensor);
  });
}

}  // namespace

std::string with_other_names(const std::string& model_json) {
  ordered_json model = ordered_json::parse(model_json);
  std::map<std::string, std::string> names;
  for (const auto& [name, type] : graph_of(model)["tensor_values"].items())
    names[name] =
        "t" + std::to_string(names.size() * 7 % 1000) + "_" + std::to_string(names.size());
  const auto rename = [&names](ordered_json& value) {
    if (!value.is_string()) return;
    const auto found = names.find(value.get<std::string>());
    if (found != names.end()) value = found->second;
  };
  ordered_json tensors = ordered_json::object();
  for (auto& [name, type] : graph_of(model)["tensor_values"].items())
    tensors[names.at(name)] = type;
  graph_of(model)["tensor_values"] = std::move(tensors);
  for (const char* part : {"inputs", "outputs"}) for_each(graph_of(model)[part], rename);
  for (auto& node : graph_of(model)["nodes"]) {
    replace_tensors(node["inputs"], names);
    replace_tensors(node["outputs"], names);
  }
  for_each(signature_of(model), rename);
  int parameters = 0;
  for (auto& spec : signature_of(model)["input_specs"])
    if (const std::string kind = parameter_kind(spec); !kind.empty())
      spec[kind][kind + "_name"] = "weights." + std::to_string(parameters++);
  return model.dump();
}

std::string with_parameters_reversed(const std::string& model_json) {
  ordered_json model = ordered_json::parse(model_json);
  auto& specs = signature_of(model)["input_specs"];
  auto& inputs = graph_of(model)["inputs"];
  std::vector<size_t> places;
  for (size_t i = 0; i < specs.size(); ++i)
    if (!parameter_kind(specs[i]).empty()) places.push_back(i);
  for (size_t i = 0; i < places.size() / 2; ++i) {
    const size_t a = places[i], b = places[places.size() - 1 - i];
    std::swap(specs[a], specs[b]);
    std::swap(inputs[a], inputs[b]);
  }
  return model.dump();
}

std::string with_nodes_reordered(const std::string& model_json) {
  ordered_json model = ordered_json::parse(model_json);
  auto& nodes = graph_of(model)["nodes"];
  std::set<std::string> made_by_nodes, ready;
  for (const auto& node : nodes)
    for (const std::string& name : tensor_names(node["outputs"])) made_by_nodes.insert(name);
  std::vector<ordered_json> waiting(nodes.begin(), nodes.end());
  ordered_json order = ordered_json::array();
  // Of the nodes that could come next always the last one.
  while (!waiting.empty()) {
    const auto next = std::find_if(waiting.rbegin(), waiting.rend(), [&](const ordered_json& node) {
      const auto needs = tensor_names(node["inputs"]);
      return std::all_of(needs.begin(), needs.end(), [&](const std::string& name) {
        return !made_by_nodes.contains(name) || ready.contains(name);
      });
    });
    if (next == waiting.rend()) return "the nodes wait for each other";
    for (const std::string& name : tensor_names((*next)["outputs"])) ready.insert(name);
    order.push_back(std::move(*next));
    waiting.erase(std::next(next).base());
  }
  nodes = std::move(order);
  return model.dump();
}

std::string on_device(const std::string& model_json, const std::string& type, int index) {
  ordered_json model = ordered_json::parse(model_json);
  for_each(model, [&](ordered_json& value) {
    if (!value.is_object()) return;
    for (const char* key : {"device", "as_device"})
      if (value.contains(key) && value[key].is_object())
        value[key] = {{"type", type}, {"index", index}};
  });
  return model.dump();
}

std::string with_views_that_do_nothing(const std::string& model_json) {
  ordered_json model = ordered_json::parse(model_json);
  ordered_json& graph = graph_of(model);
  ordered_json nodes = ordered_json::array();
  std::map<std::string, std::string> inputs, outputs;
  for (const std::string& name : tensor_names(graph["inputs"]))
    inputs[name] = add_copies(graph, nodes, name);
  for (auto& node : graph["nodes"]) {
    replace_tensors(node["inputs"], inputs);
    nodes.push_back(node);
  }
  for (const std::string& name : tensor_names(graph["outputs"]))
    if (!outputs.contains(name)) outputs[name] = add_copies(graph, nodes, name);
  graph["nodes"] = std::move(nodes);
  replace_tensors(graph["outputs"], outputs);
  replace_tensors(signature_of(model)["output_specs"], outputs);
  return model.dump();
}

std::string without_metadata(const std::string& model_json) {
  ordered_json model = ordered_json::parse(model_json);
  for (auto& node : graph_of(model)["nodes"]) node["metadata"] = ordered_json::object();
  return model.dump();
}

}  // namespace kiln::testing
