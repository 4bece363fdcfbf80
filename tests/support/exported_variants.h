// The same model exported another way: rewrites models/model.json of a .pt2 so that what is
// computed stays as it is and everything else changes. For tests of normalisation.
#pragma once

#include <string>

namespace kiln::testing {

// Every tensor and parameter has another name.
std::string with_other_names(const std::string& model_json);
// Parameters and buffers are declared in the opposite order.
std::string with_parameters_reversed(const std::string& model_json);
// Nodes stand in another order in which operands still come first.
std::string with_nodes_reordered(const std::string& model_json);
// Everything lies on `type`:`index` ("cuda", 1).
std::string on_device(const std::string& model_json, const std::string& type, int index);
// Every input is read through an alias, a clone, a view and an expand that change nothing, and so
// is every output.
std::string with_views_that_do_nothing(const std::string& model_json);
// Paths, stack traces and module stacks are gone.
std::string without_metadata(const std::string& model_json);

}  // namespace kiln::testing
