#include "client/service_request.h"

#include <vector>

#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

Result<SharedFiles> fetch(Remote& remote, LocalTier* local, Remote::Answer answer,
                          const Remote::Waiting& waiting) {
  ProgramFiles files{
      std::move(answer.program), {}, std::move(answer.manifest), std::move(answer.signature)};
  std::vector<std::string> binaries(files.program.kernels.size());
  std::vector<Digest> missing;
  for (size_t i = 0; i < binaries.size(); ++i) {
    const Digest& digest = files.program.kernels[i].blob;
    auto held =
        local != nullptr ? local->blob(digest) : Result<std::string>(fail(Code::kNotFound, ""));
    if (held)
      binaries[i] = *std::move(held);
    else
      missing.push_back(digest);
  }
  if (!missing.empty()) {
    TRY(std::vector<std::string> fetched, remote.fetch(missing, waiting));
    for (size_t i = 0, next = 0; i < binaries.size(); ++i)
      if (binaries[i].empty()) binaries[i] = std::move(fetched[next++]);
  }
  for (size_t i = 0; i < binaries.size(); ++i) {
    const ProgramKernel& kernel = files.program.kernels[i];
    files.artifacts.push_back(artifact_of(kernel, std::move(binaries[i])));
  }
  return std::make_shared<const ProgramFiles>(std::move(files));
}

}  // namespace

std::string Wanted::name() const {
  switch (call) {
    case Call::kCompile:
      return "compile";
    case Call::kFetch:
      return "fetch";
    case Call::kLookUp:
      return "look_up";
    case Call::kLoad:
      break;
  }
  return "load";
}

bool Refused::may_compile_here(Mode mode) const {
  if (error.code == Code::kUnavailable && !by_service) return true;
  const bool not_for_us = by_service && error.code == Code::kPermissionDenied;
  return mode == Mode::kDefault && (error.code == Code::kUnavailable || not_for_us);
}

Outcome outcome_of(const Remote::Answer& answer) {
  if (answer.tier0) return Outcome::kTier0;
  if (answer.stale) return Outcome::kStale;
  switch (answer.outcome) {
    case CacheOutcome::kTuned:
      return Outcome::kTuned;
    case CacheOutcome::kJoined:
      return Outcome::kJoined;
    case CacheOutcome::kHit:
      return Outcome::kHit;
    case CacheOutcome::kLocal:
      return Outcome::kLocal;
    case CacheOutcome::kQueued:
      return Outcome::kQueued;
  }
  return Outcome::kHit;
}

CompileRequest request_for(const NormalForm& form, const Wanted& wanted) {
  CompileRequest request;
  request.graph = form.digest;
  request.target = wanted.target;
  request.mode = wanted.mode;
  request.check_only = wanted.starts_nothing();
  request.strict = wanted.strict;
  request.now = wanted.now && wanted.mode == Mode::kMaxAutotune && !wanted.starts_nothing();
  request.early = (wanted.mode == Mode::kDefault || request.now) && !wanted.verify;
  request.priority = wanted.background ? Priority::kWarmUp : Priority::kInteractive;
  return request;
}

std::string text_to_send(const Graph& graph) {
  std::string text = print_with_origins(graph);
  return text.size() > kMaxMessageBytes / 2 ? print(graph) : text;
}

Asked ask(Remote& remote, LocalTier* local, const NormalForm& form, const Wanted& wanted,
          const Remote::Waiting& waiting, CallTrace& trace) {
  trace.enter("ask");
  CompileRequest request = request_for(form, wanted);
  request.traceparent = trace.traceparent();
  const auto text = [&form] { return text_to_send(form.graph); };
  TRY(Remote::Word answer, remote.compile(request, text, waiting));
  if (!answer) return tl::unexpected(Refused(answer.error(), true));
  Outcome outcome = outcome_of(*answer);
  bool memory_only = answer->memory_only;
  trace.enter("fetch");
  auto files = fetch(remote, local, *std::move(answer), waiting);
  if (!files && files.error().code == Code::kNotFound && !wanted.starts_nothing()) {
    // A blob was lost between the two questions; the coordinator now knows, and tunes it again.
    trace.enter("ask");
    request.traceparent = trace.traceparent();
    TRY(answer, remote.compile(request, text, waiting));
    if (!answer) return tl::unexpected(Refused(answer.error(), true));
    outcome = outcome_of(*answer);
    memory_only = answer->memory_only;
    trace.enter("fetch");
    files = fetch(remote, local, *std::move(answer), waiting);
  }
  // It has the program and cannot give its binaries, since its disk fails or its store is away: to
  // callers that is an unreachable service, not a missing program.
  if (!files && files.error().code == Code::kNotFound) files.error().code = Code::kUnavailable;
  if (!files) return fail(std::move(files).error());
  return Found{*std::move(files), outcome, memory_only};
}

}  // namespace kiln
