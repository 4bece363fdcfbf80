#include "client/cli/command_trace.h"

#include <cstdio>

namespace kiln::cli {

CommandTrace::CommandTrace(const Options& options, const std::string& command) {
  auto settings = trace_settings(options.otlp_endpoint, "kiln", options.variable);
  if (!settings) {
    std::fprintf(stderr, "kiln: no trace is sent: %s\n", settings.error().message.c_str());
    return;
  }
  const TraceContext caller = TraceContext::parse(options.variable("TRACEPARENT"));
  if (!settings->samples(caller)) return;
  exporter_ = SpanExporter::open(*std::move(settings));
  root_ = Span::below(caller, "kiln " + command, trace_clock_ns(options.started));
  if (!caller.is_valid()) {
    root_.context = TraceContext::root(true);
    root_.parent = {};
  }
  root_.context.sampled = true;
  root_.add("kiln.files", static_cast<int64_t>(options.files.size()));
  covered_until_ns_ = root_.start_ns;
}

CommandTrace::~CommandTrace() {
  if (exporter_ == nullptr) return;
  root_.end_ns = trace_clock_ns();
  fill("report", root_.end_ns);
  exporter_->add(std::move(root_));
}

void CommandTrace::follow(CompileOptions& compile) {
  if (exporter_ == nullptr) return;
  compile.traceparent = root_.context.to_traceparent();
  compile.on_span = [this](const Span& span) { take(span); };
}

void CommandTrace::ended(int exit_code) {
  root_.attributes.emplace_back("process.exit.code", static_cast<int64_t>(exit_code));
  if (exit_code != 0) root_.error = "exit code " + std::to_string(exit_code);
}

void CommandTrace::take(Span span) {
  if (span.parent == root_.context.span_id) {
    fill("prepare", span.start_ns);
    covered_until_ns_ = span.end_ns;
  }
  exporter_->add(std::move(span));
}

void CommandTrace::fill(const char* name, int64_t until_ns) {
  if (until_ns <= covered_until_ns_) return;
  Span span = Span::below(root_.context, name, covered_until_ns_);
  span.end_ns = until_ns;
  exporter_->add(std::move(span));
}

}  // namespace kiln::cli
