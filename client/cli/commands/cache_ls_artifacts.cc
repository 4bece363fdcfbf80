// `kiln cache ls --kind inductor`: what a store keeps for other compilers, read from its directory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cache/artifact_store.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/base/terminal_text.h"

namespace kiln::cli {
namespace {

std::string audience_text(const Audience& audience) {
  std::string text = audience.is_all() ? "all" : audience.to_text();
  std::ranges::replace(text, '\n', ',');
  return text;
}

// A key is whatever its user called it; here it is one word on one line.
std::string key_text(std::string key) {
  key = terminal_text(std::move(key));
  std::ranges::replace_if(
      key, [](char c) { return c == '\n' || c == '\t' || c == ' '; }, '?');
  return key;
}

void sort(std::vector<ListedArtifact>& artifacts, const std::string& by) {
  if (by == "size") std::ranges::stable_sort(artifacts, std::greater{}, &ListedArtifact::bytes);
  if (by == "key")
    std::ranges::stable_sort(artifacts, {}, [](const ListedArtifact& a) { return a.id.key; });
}

nlohmann::ordered_json json_of(const ListedArtifact& artifact) {
  return {{"kind", artifact.id.kind},        {"key", artifact.id.key},
          {"bytes", artifact.bytes},         {"last_use", time_text(artifact.used_ms)},
          {"last_use_ms", artifact.used_ms}, {"made_ms", artifact.made_ms},
          {"owner", artifact.owner},         {"audience", audience_text(artifact.audience)}};
}

Result<void> list_artifacts(const Options& options) {
  TRY(std::vector<ListedArtifact> artifacts,
      ArtifactStore::list(Path(options.data_dir) / kArtifactsFile, options.kind, 0));
  sort(artifacts, options.sort);
  const size_t entries = artifacts.size();
  int64_t bytes = 0;
  for (const ListedArtifact& artifact : artifacts) bytes += artifact.bytes;
  if (options.limit > 0) artifacts.resize(std::min(entries, static_cast<size_t>(options.limit)));
  if (options.json) {
    nlohmann::ordered_json report = {{"data_dir", options.data_dir},
                                     {"artifacts", entries},
                                     {"bytes", bytes},
                                     {"entries", nlohmann::ordered_json::array()}};
    for (const ListedArtifact& artifact : artifacts) report["entries"].push_back(json_of(artifact));
    // Bytes that are no UTF-8 become U+FFFD.
    std::printf(
        "%s\n",
        report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return {};
  }
  for (const ListedArtifact& artifact : artifacts)
    std::fputs(
        fmt::format("{:<21}  {:>9.1f} KiB  {}  {}{}\n", artifact.id.kind,
                    static_cast<double>(artifact.bytes) / 1024, time_text(artifact.used_ms),
                    key_text(artifact.id.key),
                    artifact.audience.is_all() ? "" : "  of " + audience_text(artifact.audience))
            .c_str(),
        stdout);
  std::fputs(
      fmt::format("{} artifacts; {:.1f} MiB{}\n", entries, static_cast<double>(bytes) / (1 << 20),
                  artifacts.size() < entries
                      ? fmt::format(" ({} shown; --limit 0 shows all)", artifacts.size())
                      : "")
          .c_str(),
      stdout);
  return {};
}

}  // namespace

int cache_ls_artifacts(const Options& options) {
  const auto listed = list_artifacts(options);
  if (listed) return kDone;
  print_error(options.data_dir, listed.error());
  return exit_code_of_store(listed.error());
}

}  // namespace kiln::cli
