#include "compiler_core/program/template_versions.h"

#include <fmt/core.h>

#include <map>

namespace kiln {
namespace {

std::string version_text(int version) {
  return version == 0 ? "none" : std::to_string(version);
}

}  // namespace

int find_version(const TemplateVersions& list, std::string_view name) {
  for (const TemplateVersion& each : list)
    if (each.name == name) return each.version;
  return 0;
}

Digest template_stamp(const TemplateVersions& list) {
  Hasher hasher("kiln.template_stamp.v1");
  for (const TemplateVersion& each : list) hasher.add(each.name).add(int64_t{each.version});
  return hasher.finish();
}

std::string to_string(const TemplateVersions& list) {
  std::string text;
  for (const TemplateVersion& each : list)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name, each.version);
  return text;
}

std::string changes(const TemplateVersions& before, const TemplateVersions& now) {
  std::map<std::string, std::pair<int, int>> versions;
  for (const TemplateVersion& each : before) versions[each.name].first = each.version;
  for (const TemplateVersion& each : now) versions[each.name].second = each.version;
  std::string text;
  for (const auto& [name, both] : versions)
    if (both.first != both.second)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, version_text(both.first),
                          version_text(both.second));
  return text;
}

}  // namespace kiln
