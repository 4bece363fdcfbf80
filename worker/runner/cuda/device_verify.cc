#include "worker/runner/cuda/device_verify.h"

#include <fmt/format.h>

namespace kiln::runner {
namespace {

// As bytes: a NaN in every float type, and a plain number in every type.
constexpr uint8_t kPoisons[] = {0xFF, 0x5C};

Verified out_of_bounds(std::string log) {
  return {Verdict::kOutOfBounds, std::move(log)};
}

class Verification {
 public:
  Verification(const CudaKernel& kernel, UtilityKernels& utility, DeviceCase& workload)
      : kernel_(kernel), utility_(utility), workload_(workload) {}

  // One launch and what it left. Nothing: all is right.
  Result<std::optional<Verified>> launch(uint8_t poison, const Alive& alive, bool& intact) {
    TRY_STATUS(prepare(poison));
    TRY_STATUS(utility_.synchronize());
    alive();
    Status launched = kernel_.launch(args_, workspace_.empty() ? 0 : workspace_[0].data(),
                                     workload_.symbols(), utility_.stream());
    if (launched) launched = utility_.synchronize();
    if (!launched) return judge_fault(*utility_.device(), launched.error());
    TRY_STATUS(look());
    TRY(const std::vector<Tally> tallies, utility_.take());
    std::span<const Tally> rest(tallies);
    intact = workload_.is_intact(take(rest, workload_.outputs().size()));
    if (!intact) return out_of_bounds("wrote far away from its buffers, into memory of the runner");
    if (auto bad = guards(take(rest, lent_.size()))) return bad;
    if (auto bad = inputs(take(rest, workload_.inputs().size()))) return bad;
    return outputs(rest, poison);
  }

  Status lend() {
    for (const auto* lents : {&workload_.inputs(), &workload_.outputs()})
      for (const LentMemory& lent : *lents) args_.push_back(lent.data());
    TRY(const int64_t bytes, kernel_.recipe().workspace_bytes.evaluate(workload_.symbols()));
    if (bytes > 0) {
      TRY(LentMemory lent, LentMemory::allocate(utility_, "workspace", bytes));
      workspace_.push_back(std::move(lent));
    }
    for (const auto* lents :
         {&workload_.inputs(), &workload_.outputs(), &std::as_const(workspace_)})
      for (const LentMemory& lent : *lents) lent_.push_back(&lent);
    return {};
  }

  // What a kernel may have damaged, as it was.
  Status restore() {
    for (size_t i = 0; i < workload_.inputs().size(); ++i)
      TRY_STATUS(workload_.draw_input(i, workload_.inputs()[i].data()));
    for (const LentMemory* lent : lent_) TRY_STATUS(lent->repair(utility_));
    return {};
  }

 private:
  static std::span<const Tally> take(std::span<const Tally>& rest, size_t count) {
    const auto taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  }

  Status prepare(uint8_t poison) {
    for (const auto* lents : {&workload_.outputs(), &std::as_const(workspace_)})
      for (const LentMemory& lent : *lents)
        TRY_STATUS(utility_.device()->fill(lent.data(), poison, lent.bytes(), utility_.stream()));
    return {};
  }

  // Everything there is to see, in one go: launch() takes the tallies in this order.
  Status look() {
    TRY_STATUS(workload_.check_expected());
    for (const LentMemory* lent : lent_) TRY_STATUS(lent->check(utility_));
    for (size_t i = 0; i < workload_.inputs().size(); ++i) TRY_STATUS(workload_.check_input(i));
    for (size_t i = 0; i < workload_.outputs().size(); ++i)
      TRY_STATUS(workload_.compare_output(i, false));
    return {};
  }

  std::optional<Verified> guards(std::span<const Tally> tallies) const {
    for (size_t i = 0; i < lent_.size(); ++i) {
      const auto damage = lent_[i]->damage(tallies[i]);
      if (!damage) continue;
      if (*damage < 0)
        return out_of_bounds(fmt::format("wrote {} bytes before {}", -*damage, lent_[i]->name()));
      return out_of_bounds(
          fmt::format("wrote {} bytes behind {}", *damage - lent_[i]->bytes(), lent_[i]->name()));
    }
    return std::nullopt;
  }

  std::optional<Verified> inputs(std::span<const Tally> tallies) const {
    for (size_t i = 0; i < tallies.size(); ++i)
      if (tallies[i].count > 0)
        return out_of_bounds(fmt::format("wrote into {} at element {}",
                                         workload_.inputs()[i].name(), tallies[i].first));
    return std::nullopt;
  }

  Result<std::optional<Verified>> outputs(std::span<const Tally> tallies, uint8_t poison) {
    for (size_t i = 0; i < tallies.size(); ++i) {
      auto difference = workload_.difference(i, tallies[i]);
      if (!difference) continue;
      TRY_STATUS(workload_.compare_output(i, true));
      TRY(const std::vector<Tally> again, utility_.take());
      difference = workload_.difference(i, again[0]);
      if (!difference) continue;
      TRY(const auto element, workload_.describe_output(i, difference->first, poison));
      int64_t count = 1;
      for (const int64_t size : workload_.output_forms()[i].sizes) count *= size;
      return Verified{
          Verdict::kWrongResult,
          fmt::format("{}: {}{}; {} of {} elements are wrong, relative tolerance {:.3g}",
                      workload_.outputs()[i].name(), element.text,
                      element.unwritten ? " (left unwritten)" : "", difference->count, count,
                      workload_.relative_tolerance())};
    }
    return std::nullopt;
  }

  const CudaKernel& kernel_;
  UtilityKernels& utility_;
  DeviceCase& workload_;
  std::vector<LentMemory> workspace_;  // one, or none when the kernel needs none
  std::vector<const LentMemory*> lent_;
  std::vector<DevicePtr> args_;  // inputs, then outputs
};

}  // namespace

Verified judge_fault(const CudaDevice& device, const Error& error) {
  switch (device.fault()) {
    case CudaDevice::Fault::kNone:
      return {Verdict::kCompileFailed, error.message};
    case CudaDevice::Fault::kAddress:
      return out_of_bounds(error.message);
    case CudaDevice::Fault::kKernel:
      return {Verdict::kWrongResult, error.message};
    case CudaDevice::Fault::kOther:
      break;
  }
  return {Verdict::kRunnerDied, error.message};
}

namespace {

Result<Verified> verify_at(const CudaKernel& kernel, UtilityKernels& utility, DeviceCase& workload,
                           const Alive& alive, bool& intact) {
  if (const auto fits = check_recipe(kernel.recipe(), workload.input_forms(),
                                     workload.output_forms(), workload.symbols());
      !fits)
    return Verified{Verdict::kWrongResult, fits.error().message};
  Verification verification(kernel, utility, workload);
  TRY_STATUS(verification.lend());
  for (const uint8_t poison : kPoisons) {
    TRY(auto bad, verification.launch(poison, alive, intact));
    if (!bad) continue;
    if (!utility.device()->is_lost()) TRY_STATUS(verification.restore());
    return *std::move(bad);
  }
  return Verified{};
}

Result<bool> references_intact(UtilityKernels& utility, const DeviceCase& workload) {
  TRY_STATUS(workload.check_expected());
  TRY(const std::vector<Tally> tallies, utility.take());
  return workload.is_intact(tallies);
}

}  // namespace

Result<Verified> verify(const CudaKernel& kernel, UtilityKernels& utility, DeviceCase& workload,
                        const Alive& alive, bool& intact) {
  std::vector<DeviceCase*> cases = {&workload};
  for (DeviceCase& other : workload.others()) cases.push_back(&other);
  Verified verified;
  for (DeviceCase* const each : cases) {
    TRY(verified, verify_at(kernel, utility, *each, alive, intact));
    if (verified.verdict == Verdict::kOk) continue;
    if (each != &workload)
      verified.log = fmt::format("at sizes {}: {}", fmt::join(each->symbols(), ", "), verified.log);
    break;
  }
  // A stray write at one size may have met the reference of another, whose next kernel would be
  // blamed for it.
  for (size_t i = 0; cases.size() > 1 && i < cases.size(); ++i) {
    if (!intact || utility.device()->is_lost()) break;
    TRY(intact, references_intact(utility, *cases[i]));
    if (!intact) verified = out_of_bounds("wrote far away, into memory of the runner");
  }
  return verified;
}

}  // namespace kiln::runner
