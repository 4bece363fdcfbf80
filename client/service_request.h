// The request that a call of Client makes of the service, and how the answer becomes a program's
// files. Pure but for ask() and the file of refused_graph().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "client/call_trace.h"
#include "client/client.h"
#include "client/local_tier.h"
#include "client/remote.h"
#include "compiler_core/base/file.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {

using SharedFiles = std::shared_ptr<const ProgramFiles>;

// Which of Client's calls this is.
struct Wanted : CompileOptions {
  // kLoad has the digest of a graph and not the graph.
  enum class Call : uint8_t { kCompile, kFetch, kLookUp, kLoad };

  Wanted(const CompileOptions& options, Call which) : CompileOptions(options), call(which) {}
  Call call;

  std::string name() const;  // of the call, in traces: "compile", "fetch", "look_up", "load"
  bool has_graph() const { return call != Call::kLoad; }
  bool starts_nothing() const { return call == Call::kLookUp || call == Call::kLoad; }
  bool is_loaded() const { return call == Call::kCompile || call == Call::kLoad; }
};

struct Found {
  SharedFiles files;
  Outcome outcome = Outcome::kHit;
  bool memory_only = false;
};

// The reason why the service gave no program.
struct Refused {
  Refused(Error why) : error(std::move(why)) {}  // NOLINT: an error that happened to us
  Refused(Error why, bool says_so) : error(std::move(why)), by_service(says_so) {}
  Error error;
  bool by_service = false;  // it answered so; else it was not reached, or was lost

  // The service is not reachable, or our key may not start work there: this machine can compile
  // what needs no search.
  bool may_compile_here(Mode mode) const;
};
using Asked = tl::expected<Found, Refused>;

CompileRequest request_for(const NormalForm& form, const Wanted& wanted);

// The canonical text, with the lines of the user's source for the service's page, unless the graph is
// so large that it might not fit with them.
std::string text_to_send(const Graph& graph);

Outcome outcome_of(const Remote::Answer& answer);

// Asks the service for `form`, sending the graph where it wants it, and fetches the binaries that
// `local` (null: no tier) does not have. A binary that was lost between the two is asked for again,
// and made again, unless the call starts nothing.
Asked ask(Remote& remote, LocalTier* local, const NormalForm& form, const Wanted& wanted,
          const Remote::Waiting& waiting, CallTrace& trace);

// A graph that this client sent and the service read as another one can only be a bug of Kiln's: normal
// form is to be a fixed point of its own text. The user is told so, the graph is kept for a report,
// and the program is compiled here.
// Whether the service's `answer` blames the graph. A custom kernel that does not compile, or computes
// something else than it says, is its author's to mend.
bool blames_our_graph(const Error& answer, const Graph& graph);

// Keeps the graph's text in `folder` (empty: the system's folder for temporary files). kInternal, with
// the place of the file and what to do with it.
Error refused_graph(const NormalForm& form, const Error& answer, const Path& folder);

}  // namespace kiln
