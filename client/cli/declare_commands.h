// The commands of `kiln` and their options, as --help shows them. Parsing a command line leaves in
// Options which command was asked for.
#pragma once

#include <CLI/CLI.hpp>

#include "client/cli/options.h"

namespace kiln::cli {

void declare_commands(CLI::App& app, Options& options);

// Parts of it: what works on programs, on a coordinator's store, and on its keys.
void declare_program_commands(CLI::App& app, Options& options);
void declare_bundle_commands(CLI::App& app, Options& options);  // and of lock files
void declare_cache_commands(CLI::App& app, Options& options);
void declare_tune_log_command(CLI::App& app, Options& options);
void declare_audit_command(CLI::App& app, Options& options);
void declare_keys_commands(CLI::App& app, Options& options);

// Options that several commands have.
void add_json(CLI::App* command, Options& options);
void add_coordinator(CLI::App* command, Options& options);
void add_target(CLI::App* command, Options& options);  // and --mode
void add_signer(CLI::App* command, Options& options);
void add_libraries(CLI::App* command, Options& options, const char* without);

// `command`, once parsed, is what `run` does.
void runs(CLI::App* command, Options& options, int (*run)(const Options&));

}  // namespace kiln::cli
