// `kiln drain WORKER`: tells a worker to finish what it has and to exit.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {

int drain_command(const Options& options) {
  AdminRequest request;
  request.kind = AdminRequest::Kind::kDrain;
  request.worker = options.worker;
  const auto done = ask_admin(options, std::move(request), std::chrono::seconds(10));
  if (!done) {
    print_error(options, "", done.error());
    return exit_code_of(done.error());
  }
  if (options.json)
    std::printf("%s\n", done->dump().c_str());
  else
    std::printf("%s finishes what it has, and then exits; `kiln stats` shows when it is gone\n",
                options.worker.c_str());
  return kDone;
}

}  // namespace kiln::cli
