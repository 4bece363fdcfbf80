// `kiln drain WORKER`: tells a worker to finish what it has and to exit.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/remote.h"

namespace kiln::cli {

int drain_command(const Options& options) {
  Remote remote(options.coordinator, std::chrono::milliseconds(2000));
  remote.use_key(options.key);
  AdminRequest request;
  request.kind = AdminRequest::Kind::kDrain;
  request.worker = options.worker;
  const auto done =
      remote.admin(std::move(request), Remote::Clock::now() + std::chrono::seconds(10));
  if (!done) {
    print_error("", done.error());
    return exit_code_of(done.error());
  }
  if (options.json)
    std::printf("%s\n", done->c_str());
  else
    std::printf("%s finishes what it has, and then exits; `kiln stats` shows when it is gone\n",
                options.worker.c_str());
  return kDone;
}

}  // namespace kiln::cli
