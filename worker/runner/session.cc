#include "worker/runner/session.h"

namespace kiln::runner {

Reply RunnerSession::handle(const Request& request, const Alive& alive) {
  auto reply = std::visit([&](const auto& r) { return serve(r, alive); }, request);
  if (!reply) return Failed{std::move(reply).error()};
  return *std::move(reply);
}

Result<Reply> RunnerSession::serve(const PrepareDevice& request, const Alive& alive) {
  const Heartbeat heartbeat(alive);  // a driver may take its time
  return bench_->prepare(request);
}

Result<Reply> RunnerSession::serve(const OpenWorkload& request, const Alive& alive) {
  alive();
  return bench_->open(request, alive);
}

Result<Reply> RunnerSession::serve(const VerifyKernel& request, const Alive& alive) {
  TRY(Recipe recipe, recipe_from_json(request.recipe_json));
  return bench_->verify(request.slot, {std::move(recipe), request.binary, request.digest}, alive);
}

Result<Reply> RunnerSession::serve(const RaceKernel& request, const Alive& alive) {
  return bench_->race_slot(request, alive);
}

Result<Reply> RunnerSession::serve(const TimeFinalists& request, const Alive& alive) {
  return bench_->time_slots(request, alive);
}

Result<Reply> RunnerSession::serve(const MeasureCalibration&, const Alive& alive) {
  alive();
  TRY(const double us, bench_->calibration_us());
  return CalibrationMeasured{us};
}

Result<Reply> RunnerSession::serve(const CompileSource&, const Alive&) {
  return fail(Code::kUnsupported, "this runner was started in the role bench");
}

Result<Reply> RunnerSession::serve(const CancelCompile&, const Alive&) {
  return fail(Code::kUnsupported, "this runner was started in the role bench");
}

}  // namespace kiln::runner
