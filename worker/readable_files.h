// The files outside the system's folders that compilers and runners need, so that their sandbox has
// them: where the runner, the libraries of this process, the compiler and CUDA's libraries lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln {

// The files of a program, named by its path or found on `search_path` ("DIR:DIR"): the program
// itself, and in an installation (PREFIX/bin/NAME) the folders beside bin that compilers read: lib,
// lib64, libexec, include, share. PREFIX itself is left out, since it may be a home.
std::vector<Path> files_of_program(const std::string& command, std::string_view search_path = "");

// The folder of each shared object that this process has loaded, and those of `search_path`
// (LD_LIBRARY_PATH).
std::vector<Path> library_folders(std::string_view search_path = "");

// The folder of `library`, or itself when it is one. Empty: none.
std::vector<Path> folder_of_library(const std::string& library);

}  // namespace kiln
