#include "worker/readable_files.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace kiln {
namespace {

// Calls `take` with each of `list`'s words, which colons part.
template <class Take>
void each_of(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(':'));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    if (word.starts_with('/') && word.size() > 1) take(Path(word));
  }
}

Path on_path(const std::string& command, std::string_view search_path) {
  if (command.find('/') != std::string::npos) return command;
  Path found;
  each_of(search_path, [&](const Path& folder) {
    if (found.empty() && ::access((folder / command).c_str(), X_OK) == 0) found = folder / command;
  });
  return found;
}

void add_once(std::vector<Path>& paths, const Path& path) {
  if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
}

}  // namespace

std::vector<Path> files_of_program(const std::string& command, std::string_view search_path) {
  std::vector<Path> files;
  const Path named = on_path(command, search_path);
  std::error_code error;
  const Path real = std::filesystem::canonical(named, error);
  if (named.empty() || error) return files;
  for (const Path& program : {named, real}) {
    add_once(files, program);
    if (program.parent_path().filename() != "bin") continue;
    add_once(files, program.parent_path());
    for (const char* folder : {"lib", "lib64", "libexec", "include", "share"})
      add_once(files, program.parent_path().parent_path() / folder);
  }
  return files;
}

std::vector<Path> library_folders(std::string_view search_path) {
  std::vector<Path> folders;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find(".so", path) != std::string::npos)
      add_once(folders, Path(line.substr(path)).parent_path());
  }
  each_of(search_path, [&](const Path& folder) { add_once(folders, folder); });
  return folders;
}

std::vector<Path> folder_of_library(const std::string& library) {
  std::error_code error;
  if (!library.starts_with('/')) return {};
  if (std::filesystem::is_directory(library, error)) return {library};
  std::vector<Path> folders = {Path(library).parent_path()};
  const Path real = std::filesystem::canonical(library, error);
  if (!error) add_once(folders, real.parent_path());
  return folders;
}

}  // namespace kiln
