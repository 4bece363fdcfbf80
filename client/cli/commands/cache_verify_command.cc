// `kiln cache verify`: reads a store back from end to end, and mends it when asked to.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cache/audit.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "client/local_tier.h"

namespace kiln::cli {
namespace {

constexpr size_t kShown = 100;  // findings printed for people

// One line on a terminal, overwritten.
bool show_progress(int64_t done, int64_t total) {
  if (::isatty(STDERR_FILENO) == 0) return true;
  std::fputs(fmt::format("\rverified {} of {}\033[K", done, total).c_str(), stderr);
  return true;
}
void wipe_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
}

void print_json(const Options& options, const AuditReport& report, bool repaired) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& finding : report.findings)
    findings.push_back({{"kind", to_string(finding.kind)},
                        {"key", finding.key.is_zero() ? "" : finding.key.hex()},
                        {"problem", finding.problem}});
  const nlohmann::ordered_json json = {
      {"data_dir", options.data_dir},  {"programs", report.programs}, {"kernels", report.kernels},
      {"blobs", report.blobs},         {"records", report.records},   {"blob_bytes", report.bytes},
      {"bad", report.findings.size()}, {"repaired", repaired},        {"findings", findings}};
  std::printf("%s\n", json.dump().c_str());
}

void print_text(const AuditReport& report, bool repaired) {
  for (size_t i = 0; i < report.findings.size() && i < kShown; ++i) {
    const Finding& finding = report.findings[i];
    std::fputs(fmt::format("{:<8} {}  {}\n", to_string(finding.kind),
                           finding.key.is_zero() ? "" : finding.key.hex(), finding.problem)
                   .c_str(),
               stdout);
  }
  if (report.findings.size() > kShown)
    std::fputs(fmt::format("... and {} more\n", report.findings.size() - kShown).c_str(), stdout);
  std::fputs(
      fmt::format("read {} programs, {} kernels, {} blobs ({:.1f} MiB), {} records: {}\n",
                  report.programs, report.kernels, report.blobs,
                  static_cast<double>(report.bytes) / (1 << 20), report.records,
                  report.findings.empty() ? "all sound"
                  : repaired              ? fmt::format("{} bad, dropped", report.findings.size())
                             : fmt::format("{} bad (a stopped store is mended with --repair; "
                                           "a coordinator, or a client, sets them aside "
                                           "when asked for them)",
                                           report.findings.size()))
          .c_str(),
      stdout);
}

// A coordinator's store, or a client's tier.
Result<AuditReport> audit_directory(const Options& options) {
  if (!is_local_tier(options.data_dir)) return audit(options.data_dir, show_progress);
  if (options.repair)
    return fail(Code::kInvalidArgument,
                options.data_dir +
                    " is a client's cache: it needs no --repair, since clients remove what is bad "
                    "when they come upon it");
  TRY(const std::string signer, expected_signer(options));
  if (signer.empty())
    std::fputs(
        "kiln: no signing key is known, so that only this machine's own signatures are "
        "checked: give --signer or --key\n",
        stderr);
  return audit_local_tier(options.data_dir, signer);
}

}  // namespace

int cache_verify_command(const Options& options) {
  const auto report = audit_directory(options);
  wipe_progress();
  if (!report) {
    print_error(options.data_dir, report.error());
    return exit_code_of_store(report.error());
  }
  bool repaired = false;
  if (options.repair && !report->findings.empty()) {
    if (const Status mended = repair(options.data_dir, *report); !mended) {
      print_error("", mended.error());
      return kAnswerIsNo;
    }
    repaired = true;
  }
  if (options.json)
    print_json(options, *report, repaired);
  else
    print_text(*report, repaired);
  return report->findings.empty() ? kDone : kAnswerIsNo;
}

}  // namespace kiln::cli
