#include "compiler_core/frontend/payload_config.h"

#include "compiler_core/frontend/json_fields.h"

namespace kiln {
namespace {

namespace dom = simdjson::dom;

Result<std::vector<int64_t>> constant_list(dom::object meta, std::string_view key) {
  TRY(const dom::array list, array_in(meta, key));
  std::vector<int64_t> values;
  for (const dom::element element : list) {
    int64_t value = 0;
    if (element["as_int"].get(value) != simdjson::SUCCESS || value < 0)
      return invalid_json("'" + std::string(key) + "' has an entry that is no size");
    values.push_back(value);
  }
  return values;
}

Result<PayloadEntry> payload_entry(dom::element element) {
  PayloadEntry entry;
  TRY(const dom::object members, as_object(element));
  TRY(entry.path_name, string_in(members, "path_name"));
  if (element["use_pickle"].get(entry.pickled) != simdjson::SUCCESS) entry.pickled = false;
  TRY(const dom::object meta, object_in(members, "tensor_meta"));
  TRY(entry.dtype.code, integer_in(meta, "dtype"));
  TRY(entry.sizes, constant_list(meta, "sizes"));
  TRY(entry.strides, constant_list(meta, "strides"));
  if (entry.strides.size() != entry.sizes.size())
    return invalid_json("'strides' and 'sizes' differ in length");
  if (meta["storage_offset"]["as_int"].get(entry.storage_offset) != simdjson::SUCCESS ||
      entry.storage_offset < 0)
    return invalid_json("'storage_offset' is missing or no size");
  return entry;
}

}  // namespace

Result<std::unordered_map<std::string, PayloadEntry>> parse_payload_config(
    const std::string& json) {
  dom::parser parser;
  TRY(const dom::object root, parse_object(parser, json));
  TRY(const dom::object config, object_in(root, "config"));
  std::unordered_map<std::string, PayloadEntry> entries;
  for (const dom::key_value_pair each : config) {
    auto entry = payload_entry(each.value);
    if (!entry) return fail(entry.error().within("entry '" + std::string(each.key) + "'"));
    entries.emplace(std::string(each.key), *std::move(entry));
  }
  return entries;
}

}  // namespace kiln
