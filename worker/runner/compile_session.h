// CompileSession: what kiln-runner does in the role `compile`: one source after another becomes a
// cubin. One thread.
#pragma once

#include <optional>
#include <string>

#include "compiler_core/compile/nvrtc.h"
#include "worker/runner/protocol.h"

namespace kiln::runner {

class CompileSession {
 public:
  // `libnvrtc` as for Nvrtc::find. When something arrives on `socket` during a compile, which can
  // only be a CancelCompile or the worker's end, the compile is given up.
  CompileSession(std::string libnvrtc, int socket)
      : libnvrtc_(std::move(libnvrtc)), socket_(socket) {}

  // Failed carries the code of Nvrtc::compile, or of opening NVRTC, which is tried with the first
  // request.
  Reply handle(const Request& request);

 private:
  Result<Reply> compile(const CompileSource& request);
  bool is_interrupted() const;

  const std::string libnvrtc_;
  const int socket_;
  std::optional<Nvrtc> nvrtc_;
};

}  // namespace kiln::runner
