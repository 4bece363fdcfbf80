// Members of JSON objects, as the files of an archive have them, with errors that name what is missing:
// kInvalidArgument, all of them.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

tl::unexpected<Error> invalid_json(std::string message);

// Adds where the error happened, outermost first: "graph: node 12 (aten.add.Tensor): ...".
template <class T>
Result<T> within(Result<T> result, const std::string& context) {
  if (!result) return fail(result.error().within(context));
  return result;
}

// The object that `json` is. It lives as long as the parser.
Result<simdjson::dom::object> parse_object(simdjson::dom::parser& parser, const std::string& json);

Result<simdjson::dom::object> object_in(simdjson::dom::object from, std::string_view key);
Result<simdjson::dom::array> array_in(simdjson::dom::object from, std::string_view key);
Result<std::string_view> string_in(simdjson::dom::object from, std::string_view key);
Result<int64_t> integer_in(simdjson::dom::object from, std::string_view key);

Result<simdjson::dom::object> as_object(simdjson::dom::element element);
// The schema's unions are objects of one member whose key names the form.
Result<simdjson::dom::key_value_pair> as_union(simdjson::dom::element element);
// json.dumps writes infinities and NaN as texts, since JSON has no such numbers.
Result<double> as_double(simdjson::dom::element element);

}  // namespace kiln
