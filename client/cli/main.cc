// `kiln`: the program for people and CI. Reads the command line and the environment once; each
// command is a function in its own file.
#include <sys/stat.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "client/cli/declare_commands.h"
#include "client/cli/options.h"
#include "compiler_core/command_line/command_line.h"
#include "compiler_core/kernels/registry.h"
#include "schema/messages.h"

namespace {

using kiln::cli::Options;

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void read_environment(Options& options) {
  options.variable = from_environment;
  options.coordinator = from_environment("KILN_COORDINATOR");
  options.key = from_environment("KILN_KEY");
  options.cache_dir = from_environment("KILN_CACHE_DIR");
  options.compiler = from_environment("KILN_CXX");
  options.libcuda = from_environment("KILN_LIBCUDA");
  options.libnvrtc = from_environment("KILN_LIBNVRTC");
  if (options.libnvrtc.empty()) options.libnvrtc = from_environment("CUDA_HOME");
  for (const char* name : {"KILN_LIBCUBLASLT", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME"})
    if (options.libcublaslt.empty()) options.libcublaslt = from_environment(name);
  const std::string home = from_environment("HOME");
  const std::string xdg = from_environment("XDG_DATA_HOME");
  options.data_dir = (xdg.empty() ? (home.empty() ? "." : home + "/.local/share") : xdg) + "/kiln";
}

// CPU time of this process so far, in ms; called first in main: the time of loading the program.
double cpu_ms() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.exec_ms = cpu_ms();
  options.started = std::chrono::steady_clock::now();
  read_environment(options);
  CLI::App app{"", "kiln"};
  app.set_version_flag("--version", [] {
    return kiln::version_line(
        "kiln", {{"protocol", std::to_string(kiln::kProtocolVersion)},
                 {"templates", kiln::template_stamp(kiln::template_versions()).short_hex()}});
  });
  kiln::cli::declare_commands(app, options);
  if (const auto code = kiln::parse_command_line(app, argc, argv)) return *code;
  ::umask(::umask(0) | S_IWGRP | S_IWOTH);  // what the libraries make is nobody else's to write
  return options.run(options);
}
