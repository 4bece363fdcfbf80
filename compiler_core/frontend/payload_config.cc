#include "compiler_core/frontend/payload_config.h"

#include <simdjson.h>

namespace kiln {
namespace {

namespace dom = simdjson::dom;

tl::unexpected<Error> invalid_config(std::string message) {
  return fail(Code::kInvalidArgument, std::move(message));
}

Result<std::vector<int64_t>> constant_list(dom::element meta, std::string_view key) {
  dom::array list;
  if (meta[key].get(list) != simdjson::SUCCESS)
    return invalid_config("'" + std::string(key) + "' is missing or no list");
  std::vector<int64_t> values;
  for (const dom::element element : list) {
    int64_t value = 0;
    if (element["as_int"].get(value) != simdjson::SUCCESS || value < 0)
      return invalid_config("'" + std::string(key) + "' has an entry that is no size");
    values.push_back(value);
  }
  return values;
}

Result<PayloadEntry> payload_entry(dom::element element) {
  PayloadEntry entry;
  std::string_view path;
  if (element["path_name"].get(path) != simdjson::SUCCESS)
    return invalid_config("'path_name' is missing or no string");
  entry.path_name = path;
  if (element["use_pickle"].get(entry.pickled) != simdjson::SUCCESS) entry.pickled = false;
  dom::element meta;
  if (element["tensor_meta"].get(meta) != simdjson::SUCCESS)
    return invalid_config("'tensor_meta' is missing");
  if (meta["dtype"].get(entry.dtype.code) != simdjson::SUCCESS)
    return invalid_config("'dtype' is missing or no integer");
  TRY(entry.sizes, constant_list(meta, "sizes"));
  TRY(entry.strides, constant_list(meta, "strides"));
  if (entry.strides.size() != entry.sizes.size())
    return invalid_config("'strides' and 'sizes' differ in length");
  if (meta["storage_offset"]["as_int"].get(entry.storage_offset) != simdjson::SUCCESS ||
      entry.storage_offset < 0)
    return invalid_config("'storage_offset' is missing or no size");
  return entry;
}

}  // namespace

Result<std::unordered_map<std::string, PayloadEntry>> parse_payload_config(
    const std::string& json) {
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json).get(root); error != simdjson::SUCCESS)
    return invalid_config(std::string("not valid JSON: ") + simdjson::error_message(error));
  dom::object config;
  if (root["config"].get(config) != simdjson::SUCCESS)
    return invalid_config("'config' is missing or no object");
  std::unordered_map<std::string, PayloadEntry> entries;
  for (const dom::key_value_pair each : config) {
    auto entry = payload_entry(each.value);
    if (!entry) return fail(entry.error().within("entry '" + std::string(each.key) + "'"));
    entries.emplace(std::string(each.key), *std::move(entry));
  }
  return entries;
}

}  // namespace kiln
