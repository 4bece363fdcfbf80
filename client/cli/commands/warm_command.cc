#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/command_trace.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"
#include "client/cli/session.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/specialise.h"
#include "schema/messages.h"

namespace kiln::cli {
namespace {

// One submission for each part of the sizes that the hints make.
Result<std::vector<Client::Submission>> submit(Client& client, const CompileOptions& compile,
                                               const Options& options, const std::string& file) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(const Hints hints, parse_hints(options.hints, exported));
  TRY(const auto parts, parts_of_hints(exported.graph.symbols(), hints));
  std::vector<Client::Submission> submissions;
  for (const std::vector<Symbol>& sizes : parts) {
    TRY(const Graph part, specialise(exported.graph, sizes));
    TRY(Client::Submission submission, client.submit(part, compile));
    submissions.push_back(std::move(submission));
  }
  return submissions;
}

void print_queued(const Options& options, const std::string& file,
                  const Client::Submission& queued) {
  if (options.json) {
    const nlohmann::ordered_json object = {{"file", file},
                                           {"graph_digest", queued.graph.hex()},
                                           {"target", queued.target.to_string()},
                                           {"mode", options.mode},
                                           {"cache", to_string(queued.outcome)}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    fmt::print("{}  {}  {} for {}, {}\n", file, to_string(queued.outcome), queued.graph.short_hex(),
               queued.target.to_string(), options.mode);
  }
  std::fflush(stdout);
}

int queue_files(const Options& options) {
  auto compile = compile_options(options);
  if (!compile) return report_failure(options, "", compile.error());
  CommandTrace trace(options, "warm");
  trace.follow(*compile);
  const auto client = make_client(options);
  if (!client) return report_failure(options, "", client.error());
  // Every file is tried; the first failure decides the exit code.
  int code = kDone;
  for (const std::string& file : options.files) {
    const auto queued = submit(**client, *compile, options, file);
    if (queued) {
      for (const Client::Submission& each : *queued) print_queued(options, file, each);
    } else {
      const int one = report_failure(options, file, queued.error());
      if (code == kDone) code = one;
    }
  }
  trace.ended(code);
  return code;
}

nlohmann::ordered_json status_json(const Stats& stats) {
  nlohmann::ordered_json flights = nlohmann::ordered_json::array();
  for (const DetachedStats& flight : stats.detached)
    flights.push_back({{"program_key", flight.program.hex()},
                       {"graph_digest", flight.graph.hex()},
                       {"target", flight.target.to_string()},
                       {"mode", to_string(flight.mode)},
                       {"state", flight.state},
                       {"reason", flight.reason},
                       {"processes_lost", flight.lost}});
  return {{"queued", stats.detached_queued},
          {"running", stats.detached_running},
          {"failed", stats.detached_failed},
          {"programs", std::move(flights)}};
}

std::string status_text(const Stats& stats) {
  std::string text = fmt::format("{} queued, {} running, {} failed\n", stats.detached_queued,
                                 stats.detached_running, stats.detached_failed);
  for (const DetachedStats& flight : stats.detached)
    text += fmt::format(
        "  {:<8} graph {}  {}  {}  key {}{}{}{}\n", flight.state, flight.graph.short_hex(),
        flight.target.to_string(), to_string(flight.mode), flight.program.hex(),
        flight.lost > 0 ? fmt::format("  cost {} processes of workers", flight.lost) : "",
        flight.reason.empty() ? "" : "  ", flight.reason);
  return text;
}

int show_status(const Options& options) {
  const auto service = service_of(options);
  if (!service) return report_failure(options, "", service.error());
  const auto stats = (*service)->stats(Remote::Clock::now() + std::chrono::seconds(5));
  if (!stats) return report_failure(options, "", stats.error());
  std::fputs((options.json ? status_json(*stats).dump() + "\n" : status_text(*stats)).c_str(),
             stdout);
  return stats->detached_failed > 0 ? kAnswerIsNo : kDone;
}

int ask(const Options& options, AdminRequest request, const char* said) {
  const auto done = ask_admin(options, std::move(request), std::chrono::seconds(10));
  if (!done) return report_failure(options, "", done.error());
  std::printf("%s\n", options.json ? done->dump().c_str() : said);
  return kDone;
}

int forget_failed(const Options& options) {
  AdminRequest request;
  request.kind = AdminRequest::Kind::kForgetFailed;
  return ask(options, std::move(request),
             "what had failed is forgotten; queue it again with --detach");
}

int cancel(const Options& options) {
  AdminRequest request;
  request.kind = AdminRequest::Kind::kCancelDetached;
  const auto key = Digest::parse(options.cancel);
  if (!key)
    return report_failure(options, "",
                          {Code::kInvalidArgument,
                           "a program's key has 64 hex digits; `kiln warm --status` prints it", 0});
  request.key = *key;
  return ask(options, std::move(request), "it is not tuned any more without a client");
}

}  // namespace

int warm_command(const Options& options) {
  const auto bad_usage = [](const char* message) {
    print_error("", {Code::kInvalidArgument, message, 0});
    return kBadInput;
  };
  if (options.coordinator.empty())
    return bad_usage("which service? name it with --coordinator or KILN_COORDINATOR");
  if (options.forget_failed) return forget_failed(options);
  if (!options.cancel.empty()) return cancel(options);
  if (options.warm_status) return show_status(options);
  if (options.files.empty()) return bad_usage("which programs? name their files, or ask --status");
  if (options.detach) return queue_files(options);
  // A program compiled on this machine would warm nobody's cache.
  Options waiting = options;
  waiting.no_fallback = true;
  waiting.warm_up = true;
  waiting.strict = true;  // it is to be tuned, not to be had
  waiting.verify = true;  // and to be stored
  return compile_command(waiting);
}

}  // namespace kiln::cli
