#include "worker/runner/lower_session.h"

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"

namespace kiln::runner {

Reply LowerSession::handle(const Request& request) {
  const auto* wanted = std::get_if<LowerCandidate>(&request);
  if (wanted == nullptr)
    return Failed{{Code::kUnsupported, "this runner was started for something else", 0}};
  Result<Reply> reply = lower(*wanted);
  if (!reply) return Failed{std::move(reply).error()};
  return *std::move(reply);
}

Result<Reply> LowerSession::lower(const LowerCandidate& request) {
  if (!graph_ || graph_text_ != request.graph_text) {
    graph_.reset();
    TRY(graph_, parse_graph(request.graph_text));
    graph_text_ = request.graph_text;
  }
  TRY(Buildable made,
      kiln::lower(Workload{*graph_, request.family, {}}, request.schedule, request.target));
  if (Source* source = std::get_if<Source>(&made))
    return Lowered{true, recipe_to_json(source->recipe), std::move(source->text)};
  Artifact& artifact = std::get<Artifact>(made);
  return Lowered{false, recipe_to_json(artifact.recipe), std::move(artifact.binary)};
}

}  // namespace kiln::runner
