// `kiln doctor`: whether this machine has what Kiln needs, and the command that mends what it
// lacks. Starts nothing that stays, and changes nothing.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/child_program.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"
#include "compiler_core/base/own_directory.h"
#include "compiler_core/base/text.h"
#include "compiler_core/command_line/command_line.h"
#include "schema/keys/key_file.h"

namespace kiln::cli {
namespace {

constexpr auto kProbePatience = std::chrono::seconds(30);

struct Finding {
  enum class State { kGood, kNote, kBad };
  State state;
  std::string subject, text, mend;  // mend: a command or a step; empty: nothing to do
};
using State = Finding::State;
using Findings = std::vector<Finding>;

// The four programs are of one build: the commit that --version names.
void check_versions(Findings& findings) {
  const auto commit_of = [](const std::string& line) {
    const size_t at = line.find("(commit ");
    return at == std::string::npos ? line
                                   : line.substr(at + 8, line.find_first_of(",)", at) - at - 8);
  };
  const std::string ours = version_line("kiln", {});
  for (const char* name : {"kiln-coordinator", "kiln-worker", "kiln-runner"}) {
    const Path program = beside_this_program(name);
    std::error_code ignored;
    if (!std::filesystem::exists(program, ignored)) {
      findings.push_back(
          {State::kNote, name, "is not beside kiln: this machine can be a client only", ""});
      continue;
    }
    const auto said = run_program({program.string(), "--version"}, kProbePatience);
    if (!said || said->exit_code != 0)
      findings.push_back(
          {State::kBad, name, program.string() + " does not run", "install it again"});
    else if (commit_of(said->output) != commit_of(ours))
      findings.push_back({State::kNote, name,
                          "is another build: " + std::string(trimmed(said->output)),
                          "install all of them from one build"});
    else
      findings.push_back({State::kGood, name, std::string(trimmed(said->output)), ""});
  }
}

// A worker's own view of a device, its compiler and its sandbox.
void check_device(const std::string& device, Findings& findings) {
  const auto said = run_program(
      {beside_this_program("kiln-worker").string(), "--check", "--device", device}, kProbePatience);
  if (!said) {
    findings.push_back({State::kBad, device, said.error().message, ""});
    return;
  }
  const size_t begin = said->output.find('{');
  const auto found = begin == std::string::npos
                         ? nlohmann::json()
                         : nlohmann::json::parse(said->output.substr(begin), nullptr, false);
  if (said->exit_code != 0 || !found.is_object()) {
    const bool cpu = device == "cpu";
    findings.push_back(
        {State::kBad, device, std::string(trimmed(said->output)),
         cpu ? "apt-get install g++, or name a compiler with KILN_CXX"
             : "install CUDA's NVRTC (pip install nvidia-cuda-nvrtc), or name it with "
               "KILN_LIBNVRTC"});
    return;
  }
  findings.push_back({State::kGood, device,
                      fmt::format("{}, {}, {}", found.value("target", ""), found.value("model", ""),
                                  found.value("toolkit", "")),
                      ""});
  for (const auto& library : found["libraries"])
    findings.push_back(
        {State::kGood, device,
         fmt::format("may call {} {}", library.value("name", ""), library.value("version", "")),
         ""});
  if (device != "cpu") return;
  const std::string sandbox = found.value("sandbox", "");
  const bool whole = sandbox.find("without") == std::string::npos && sandbox != "off";
  findings.push_back(
      {whole ? State::kGood : State::kNote, "sandbox", sandbox,
       whole ? "" : "docs/security.md says what the kernel of this machine must allow"});
}

void check_devices(const Options& options, Findings& findings) {
  std::error_code ignored;
  if (!std::filesystem::exists(beside_this_program("kiln-worker"), ignored)) return;
  check_device("cpu", findings);
  std::vector<std::string> arguments = {beside_this_program("kiln-worker").string(),
                                        "--list-devices"};
  if (!options.libcuda.empty()) arguments.insert(arguments.end(), {"--libcuda", options.libcuda});
  const auto listed = run_program(arguments, kProbePatience);
  std::istringstream lines(listed && listed->exit_code == 0 ? listed->output : "");
  bool any = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cuda:")) continue;
    any = true;
    check_device(line.substr(0, line.find(' ')), findings);
  }
  if (!any)
    findings.push_back({State::kNote, "gpu",
                        "no NVIDIA GPU, or no driver (libcuda.so.1): kernels for the CPU only",
                        ""});
}

// A directory that is there is ours, and has room; one that is not is made when it is needed.
void check_directory(const char* subject, const std::string& directory, Findings& findings) {
  if (directory.empty()) return;
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    findings.push_back({State::kGood, subject, directory + " (is made when it is needed)", ""});
    return;
  }
  if (const Status ours = check_ours(directory); !ours) {
    findings.push_back({State::kBad, subject, ours.error().message, ""});
    return;
  }
  struct statvfs disk {};
  constexpr uint64_t kLittle = uint64_t{1} << 30;
  const bool known = ::statvfs(directory.c_str(), &disk) == 0;
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string text =
      fmt::format("{}, {:.1f} GiB free", directory,
                  static_cast<double>(free_bytes) / static_cast<double>(uint64_t{1} << 30));
  if (known && free_bytes < kLittle)
    findings.push_back(
        {State::kBad, subject, text,
         "make room, or bound it: kiln-coordinator --cache-size, kiln --cache-size"});
  else
    findings.push_back({State::kGood, subject, text, ""});
}

void check_key(const Options& options, Findings& findings) {
  if (options.key.empty()) {
    findings.push_back({State::kNote, "key", "none: only services on this machine let us in",
                        "for others: kiln keys new NAME, there; then KILN_KEY=NAME.key"});
    return;
  }
  const auto key = read_client_key(options.key);
  if (!key) {
    findings.push_back({State::kBad, "key", key.error().message,
                        "kiln keys new NAME, on the coordinator's machine"});
    return;
  }
  findings.push_back(
      {State::kGood, "key",
       fmt::format("{}, of {}, role {}{}", options.key, key->name, to_string(key->grant),
                   key->signing_key.empty() ? ", pins no signer" : ""),
       ""});
}

void check_service(const Options& options, Findings& findings) {
  if (options.coordinator.empty()) {
    findings.push_back({State::kNote, "service", "none is named",
                        "kiln up, and KILN_COORDINATOR=tcp://127.0.0.1:7557"});
    return;
  }
  const auto service = service_of(options);
  auto stats = service ? (*service)->stats(Remote::Clock::now() + std::chrono::seconds(5))
                       : Result<Stats>(fail(service.error()));
  if (!stats) {
    findings.push_back({State::kBad, "service", stats.error().message,
                        "is it running there, and is the port open? kiln-coordinator --listen"});
    return;
  }
  int serving = 0;
  for (const WorkerStats& worker : stats->workers) {
    serving += worker.state == "serving" ? 1 : 0;
    if (worker.state == "quarantined")
      findings.push_back({State::kBad, "worker", worker.name + " is quarantined: " + worker.reason,
                          "look at that machine; kiln drain " + worker.name});
  }
  findings.push_back({State::kGood, "service",
                      fmt::format("{}, up for {:.0f} s, {} entries", options.coordinator,
                                  stats->uptime_s, stats->entries),
                      ""});
  if (serving == 0)
    findings.push_back({State::kBad, "service", "no worker serves there",
                        "kiln-worker --coordinator " + options.coordinator});
}

std::string_view word(State state) {
  return state == State::kGood ? "ok" : state == State::kNote ? "note" : "bad";
}

}  // namespace

int doctor_command(const Options& options) {
  Findings findings;
  check_versions(findings);
  check_devices(options, findings);
  check_directory("store", options.data_dir, findings);
  check_directory("cache", options.cache_dir, findings);
  check_key(options, findings);
  check_service(options, findings);
  bool bad = false;
  auto json = nlohmann::ordered_json::array();
  std::string text;
  for (const Finding& finding : findings) {
    bad = bad || finding.state == State::kBad;
    json.push_back({{"state", word(finding.state)},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"mend", finding.mend}});
    text += fmt::format("{:<5} {:<17} {}\n", word(finding.state), finding.subject, finding.text);
    if (!finding.mend.empty()) text += fmt::format("{:<23} -> {}\n", "", finding.mend);
  }
  if (options.json)
    std::printf("%s\n", nlohmann::ordered_json{{"ok", !bad}, {"checks", json}}.dump().c_str());
  else
    std::fputs(text.c_str(), stdout);
  return bad ? kAnswerIsNo : kDone;
}

}  // namespace kiln::cli
