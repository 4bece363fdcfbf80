#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

void write_corpus(const std::string& directory) {
  CHECK(make_directories(directory), "the corpus has a place");
  for (const std::string& seed : seeds())
    CHECK(write_file(Path(directory) / Digest::of(seed).short_hex(), seed), "the disk takes it");
}

std::vector<std::string> files_of(std::string_view ending, size_t max_bytes) {
  std::vector<Path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(Path(KILN_GRAPHS_DIR) / "small"))
    if (entry.path().string().ends_with(ending) && entry.file_size() < max_bytes)
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // the same seeds everywhere
  std::vector<std::string> files;
  for (const Path& path : paths) files.push_back(read_file(path).value());
  CHECK(!files.empty(), "tests/graphs/small has such files");
  return files;
}

}  // namespace kiln::fuzz
