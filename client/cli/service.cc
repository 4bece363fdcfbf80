#include "client/cli/service.h"

namespace kiln::cli {

Result<std::unique_ptr<Remote>> service_of(const Options& options) {
  if (options.coordinator.empty())
    return fail(Code::kInvalidArgument,
                "which service? name it with --coordinator or KILN_COORDINATOR");
  auto remote = std::make_unique<Remote>(options.coordinator, std::chrono::milliseconds(2000));
  remote->use_key(options.key);
  return remote;
}

Result<nlohmann::ordered_json> ask_admin(const Options& options, AdminRequest request,
                                         std::chrono::seconds patience) {
  TRY(const auto service, service_of(options));
  TRY(const std::string text, service->admin(std::move(request), Remote::Clock::now() + patience));
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) return fail(Code::kInternal, "the coordinator's answer is no JSON");
  return json;
}

}  // namespace kiln::cli
