// The service that --coordinator names, and what operators ask of it.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/options.h"
#include "client/remote.h"

namespace kiln::cli {

// With --key. kInvalidArgument where no service is named; connects to nobody yet.
Result<std::unique_ptr<Remote>> service_of(const Options& options);

// The service's answer to an admin.
Result<nlohmann::ordered_json> ask_admin(const Options& options, AdminRequest request,
                                         std::chrono::seconds patience);

}  // namespace kiln::cli
