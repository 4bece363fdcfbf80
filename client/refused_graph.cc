#include "client/service_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "compiler_core/ir/text.h"

namespace kiln {

bool blames_our_graph(const Error& answer, const Graph& graph) {
  return answer.code == Code::kInvalidArgument &&
         std::none_of(graph.nodes().begin(), graph.nodes().end(),
                      [](const Node& node) { return node.op == Op::kCustomCall; });
}

Error refused_graph(const NormalForm& form, const Error& answer, const Path& folder) {
  std::error_code none;
  const Path place = folder.empty() ? std::filesystem::temp_directory_path(none) : folder;
  const Path file = place / ("kiln-refused-" + form.digest.short_hex() + ".graph");
  const Status kept = publish_file(file, print(form.graph));
  return {Code::kInternal,
          fmt::format("the service refused the graph that this client made: {}. This is a bug of "
                      "Kiln's and not of your program; {}",
                      answer.message,
                      kept ? "please report it with the graph, which is in " + file.string()
                           : "the graph could not be kept: " + kept.error().message),
          0};
}

}  // namespace kiln
