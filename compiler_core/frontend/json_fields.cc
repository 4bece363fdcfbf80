#include "compiler_core/frontend/json_fields.h"

#include <limits>

namespace kiln {

namespace dom = simdjson::dom;
using std::string_view;

tl::unexpected<Error> invalid_json(std::string message) {
  return fail(Code::kInvalidArgument, std::move(message));
}

Result<dom::object> parse_object(dom::parser& parser, const std::string& json) {
  dom::element root;
  if (const auto error = parser.parse(json).get(root); error != simdjson::SUCCESS)
    return invalid_json(std::string("not valid JSON: ") + simdjson::error_message(error));
  return as_object(root);
}

Result<dom::object> object_in(dom::object from, string_view key) {
  dom::object value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid_json("'" + std::string(key) + "' is missing or no object");
  return value;
}
Result<dom::array> array_in(dom::object from, string_view key) {
  dom::array value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid_json("'" + std::string(key) + "' is missing or no list");
  return value;
}
Result<string_view> string_in(dom::object from, string_view key) {
  string_view value;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid_json("'" + std::string(key) + "' is missing or no string");
  return value;
}
Result<int64_t> integer_in(dom::object from, string_view key) {
  int64_t value = 0;
  if (from[key].get(value) != simdjson::SUCCESS)
    return invalid_json("'" + std::string(key) + "' is missing or no integer");
  return value;
}
Result<dom::object> as_object(dom::element element) {
  dom::object value;
  if (element.get(value) != simdjson::SUCCESS) return invalid_json("not an object");
  return value;
}
Result<dom::key_value_pair> as_union(dom::element element) {
  TRY(const dom::object object, as_object(element));
  if (object.size() != 1) return invalid_json("not an object of one member");
  return *object.begin();
}

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
  return invalid_json("not a number");
}

}  // namespace kiln
