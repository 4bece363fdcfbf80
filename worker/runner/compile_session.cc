#include "worker/runner/compile_session.h"

#include <poll.h>

namespace kiln::runner {

bool CompileSession::is_interrupted() const {
  pollfd poll_fd{socket_, POLLIN, 0};
  return ::poll(&poll_fd, 1, 0) > 0;
}

Reply CompileSession::handle(const Request& request) {
  const auto* source = std::get_if<CompileSource>(&request);
  if (source == nullptr)
    return Failed{{Code::kUnsupported, "this runner was started for something else", 0}};
  Result<Reply> reply = compile(*source);
  if (!reply) return Failed{std::move(reply).error()};
  return *std::move(reply);
}

Result<Reply> CompileSession::compile(const CompileSource& request) {
  TRY(const Target target, Target::parse(request.target));
  if (!nvrtc_) {
    TRY(nvrtc_, Nvrtc::find(libnvrtc_));
  }
  TRY(Nvrtc::Object object,
      nvrtc_->compile({request.text, {}}, target, [this] { return is_interrupted(); }));
  if (object.artifact.binary.size() + 1024 > kMaxFrameBytes)
    return fail(Code::kInvalidArgument, "the cubin is larger than what is stored or sent");
  return CompiledObject{std::move(object.artifact.binary), object.resources};
}

}  // namespace kiln::runner
