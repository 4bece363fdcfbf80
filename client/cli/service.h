// The service that --coordinator names, what operators ask of it, and the index of a store that nobody
// need serve.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/cli/options.h"
#include "client/remote.h"

namespace kiln::cli {

// With --key. kInvalidArgument where no service is named; connects to nobody yet.
Result<std::unique_ptr<Remote>> service_of(const Options& options);

// The service's answer to an admin; over a connection of its own, or that of `service`.
Result<nlohmann::ordered_json> ask_admin(const Options& options, AdminRequest request,
                                         std::chrono::seconds patience);
Result<nlohmann::ordered_json> ask_admin(Remote& service, AdminRequest request,
                                         std::chrono::seconds patience);

// The index of the store in --data-dir. kNotFound where there is none; `or_else`: what else could be
// named, ", or the service with --coordinator".
Result<Path> index_file(const Options& options, std::string_view or_else = {});

// A program's or kernel's key, for `what`; nothing where `text` is empty.
Result<std::optional<Digest>> parse_key(const std::string& text, const char* what);
// "2026-11-23T06:00:00" or "2026-11-23" (UTC), or "90m", "12h", "7d" ago: Unix time in ms; empty: 0.
Result<int64_t> parse_since(const std::string& text);

}  // namespace kiln::cli
