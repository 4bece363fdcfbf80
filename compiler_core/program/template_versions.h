// TemplateVersions: which kernel templates (kernels/kernel_template.h) there are, and the version
// of each. Beside a winner it says which templates had candidates when it won; the winner is stale
// when the list for its workload is another one now. A program carries only the stamp of the whole
// list: where that is equal, none of its kernels can be stale. Plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/digest.h"

namespace kiln {

struct TemplateVersion {
  std::string name;  // KernelTemplate::name()
  int version = 0;   // 1 and up
  bool operator==(const TemplateVersion&) const = default;
};
using TemplateVersions = std::vector<TemplateVersion>;  // by name, each once

// The version of the template `name`; 0: the list has none of it.
int find_version(const TemplateVersions& list, std::string_view name);
// A digest of the list.
Digest template_stamp(const TemplateVersions& list);
// "cpu.matmul 2, custom 1".
std::string to_string(const TemplateVersions& list);
// The templates whose version in `now` is another than in `before`: "cpu.matmul 1 -> 2, cpu.new
// none -> 1". Empty: none.
std::string changes(const TemplateVersions& before, const TemplateVersions& now);

}  // namespace kiln
