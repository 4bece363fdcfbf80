// CommandTrace: the spans of one `kiln` command, and their way to a collector. Its root is below
// TRACEPARENT, so that the jobs of a CI pipeline join their pipeline's trace, or begins a trace; below
// it are the calls of the client's library, and between these `prepare` and at the end `report`, so
// that the parts add up to what the caller waited. One thread.
#pragma once

#include <memory>
#include <string>

#include "client/cli/options.h"
#include "client/client.h"
#include "schema/tracing/otlp/span_exporter.h"

namespace kiln::cli {

class CommandTrace {
 public:
  // Off, unless the command line or the environment names a collector. A variable that cannot be read
  // is said on stderr, and costs the trace only.
  CommandTrace(const Options& options, const std::string& command);
  // Ends the root, and sends what there is for two seconds at most.
  ~CommandTrace();
  CommandTrace(const CommandTrace&) = delete;
  CommandTrace& operator=(const CommandTrace&) = delete;

  // Has the calls with `compile` make spans. It outlives them.
  void follow(CompileOptions& compile);
  void ended(int exit_code);

 private:
  void take(Span span);
  void fill(const char* name, int64_t until_ns);

  std::unique_ptr<SpanExporter> exporter_;  // null: it is off
  Span root_;
  int64_t covered_until_ns_ = 0;
};

}  // namespace kiln::cli
