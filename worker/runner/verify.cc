#include "worker/runner/verify.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln::runner {
namespace {

// Bytes to fill outputs with: a NaN in every float type, and an ordinary number in every type.
constexpr uint8_t kPoisons[] = {0xFF, 0x5C};

Verified out_of_bounds(std::string log) {
  return {Verdict::kOutOfBounds, std::move(log)};
}

// The verdict on a kernel whose launch failed.
Verified judge_fault(const Device& device, const Error& error) {
  switch (device.fault()) {
    case Device::Fault::kNone:
      return {Verdict::kCompileFailed, error.message};
    case Device::Fault::kAddress:
      return out_of_bounds(error.message);
    case Device::Fault::kKernel:
      return {Verdict::kWrongResult, error.message};
    case Device::Fault::kOther:
      break;
  }
  return {Verdict::kRunnerDied, error.message};
}

// Names what is wrong with the outputs, of which `tallies` are the comparisons.
Result<std::optional<Verified>> wrong_outputs(EvaluationDevice& device, PreparedWorkload& workload,
                                              std::span<const Tally> tallies, uint8_t poison) {
  for (size_t i = 0; i < tallies.size(); ++i) {
    auto difference = workload.difference(i, tallies[i]);
    if (!difference) continue;
    TRY_STATUS(workload.compare_output(i, true));
    TRY(const std::vector<Tally> again, device.take());
    difference = workload.difference(i, again[0]);
    if (!difference) continue;
    TRY(const auto element, workload.describe_output(i, difference->first, poison));
    return Verified{Verdict::kWrongResult,
                    fmt::format("{}: {}{}; {} of {} elements are wrong, relative tolerance {:.3g}",
                                workload.outputs()[i].name, element.text,
                                element.unwritten ? " (left unwritten)" : "", difference->count,
                                workload.output_count(i), workload.relative_tolerance())};
  }
  return std::nullopt;
}

class Verification {
 public:
  Verification(const LoadedKernel& kernel, EvaluationDevice& device, PreparedWorkload& workload)
      : kernel_(kernel), device_(device), workload_(workload) {}

  // One launch and what it left. Nothing: all is right.
  Result<std::optional<Verified>> launch(uint8_t poison, ReadyInputs ready, const Alive& alive,
                                         bool& intact) {
    TRY_STATUS(prepare(poison));
    TRY_STATUS(device_.synchronize());
    alive();
    Status launched =
        kernel_.launch(args_, workspace_.empty() ? 0 : workspace_[0].data, workload_.symbols(),
                       device_.stream(), {.ready = ready, .behind_all = true});
    if (launched) launched = device_.synchronize();
    if (!launched) return judge_fault(device_.device(), launched.error());
    TRY_STATUS(look());
    TRY(const std::vector<Tally> tallies, device_.take());
    std::span<const Tally> rest(tallies);
    intact = workload_.is_intact(take(rest, workload_.outputs().size()));
    if (!intact) return out_of_bounds("wrote far away from its buffers, into memory of the runner");
    if (auto bad = guards(take(rest, guarded_.size()))) return bad;
    if (auto bad = inputs(take(rest, workload_.inputs().size()))) return bad;
    return wrong_outputs(device_, workload_, rest, poison);
  }

  Status allocate() {
    for (const auto* buffers : {&workload_.inputs(), &workload_.outputs()})
      for (const GuardedMemory& buffer : *buffers) args_.push_back(buffer.data);
    TRY(const int64_t bytes, kernel_.recipe().workspace_bytes.evaluate(workload_.symbols()));
    if (bytes > 0) {
      TRY(GuardedMemory memory, device_.allocate_guarded("workspace", bytes));
      workspace_.push_back(std::move(memory));
    }
    for (const auto* buffers :
         {&workload_.inputs(), &workload_.outputs(), &std::as_const(workspace_)})
      for (const GuardedMemory& buffer : *buffers) guarded_.push_back(&buffer);
    return {};
  }

  Result<std::vector<std::string>> launch_for_outputs(uint64_t launches) {
    TRY_STATUS(prepare(kPoisons[1]));
    for (uint64_t i = 0; i < launches; ++i)
      TRY_STATUS(kernel_.launch(args_, workspace_.empty() ? 0 : workspace_[0].data,
                                workload_.symbols(), device_.stream(), {}));
    TRY_STATUS(device_.synchronize());
    std::vector<std::string> outputs;
    for (const GuardedMemory& output : workload_.outputs()) {
      std::string& bytes = outputs.emplace_back(static_cast<size_t>(output.bytes), '\0');
      TRY_STATUS(device_.device().copy_to_host(
          {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}, output.data));
    }
    return outputs;
  }

  // Restores everything that a kernel may have damaged.
  Status restore() {
    for (size_t i = 0; i < workload_.inputs().size(); ++i) TRY_STATUS(workload_.draw_input(i));
    for (const GuardedMemory* memory : guarded_) TRY_STATUS(device_.repair_guards(*memory));
    return {};
  }

 private:
  static std::span<const Tally> take(std::span<const Tally>& rest, size_t count) {
    const auto taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  }

  Status prepare(uint8_t poison) {
    for (const auto* buffers : {&workload_.outputs(), &std::as_const(workspace_)})
      for (const GuardedMemory& buffer : *buffers)
        TRY_STATUS(device_.device().fill(buffer.data, poison, buffer.bytes, device_.stream()));
    for (const KeptOutput& each : kernel_.recipe().kept) {
      const GuardedMemory& output = workload_.outputs()[static_cast<size_t>(each.output)];
      const GuardedMemory& input = workload_.inputs()[static_cast<size_t>(each.input)];
      TRY_STATUS(
          device_.device().copy_on_device(output.data, input.data, output.bytes, device_.stream()));
    }
    return {};
  }

  // Everything there is to see, in one go: launch() takes the tallies in this order.
  Status look() {
    TRY_STATUS(workload_.check_expected());
    for (const GuardedMemory* memory : guarded_) TRY_STATUS(device_.check_guards(*memory));
    for (size_t i = 0; i < workload_.inputs().size(); ++i) TRY_STATUS(workload_.check_input(i));
    for (size_t i = 0; i < workload_.outputs().size(); ++i)
      TRY_STATUS(workload_.compare_output(i, false));
    return {};
  }

  std::optional<Verified> guards(std::span<const Tally> tallies) const {
    for (size_t i = 0; i < guarded_.size(); ++i) {
      const auto damage = guarded_[i]->damage(tallies[i]);
      if (!damage) continue;
      if (*damage < 0)
        return out_of_bounds(fmt::format("wrote {} bytes before {}", -*damage, guarded_[i]->name));
      return out_of_bounds(
          fmt::format("wrote {} bytes behind {}", *damage - guarded_[i]->bytes, guarded_[i]->name));
    }
    return std::nullopt;
  }

  std::optional<Verified> inputs(std::span<const Tally> tallies) const {
    for (size_t i = 0; i < tallies.size(); ++i)
      if (tallies[i].count > 0)
        return out_of_bounds(fmt::format("wrote into {} at element {}", workload_.inputs()[i].name,
                                         tallies[i].first));
    return std::nullopt;
  }

  const LoadedKernel& kernel_;
  EvaluationDevice& device_;
  PreparedWorkload& workload_;
  std::vector<GuardedMemory> workspace_;  // one, or none when the kernel needs none
  std::vector<const GuardedMemory*> guarded_;
  std::vector<DevicePtr> args_;  // inputs, then outputs
};

Result<Verified> verify_at(const LoadedKernel& kernel, EvaluationDevice& device,
                           PreparedWorkload& workload, const Alive& alive, bool& intact) {
  if (const auto fits = workload.check_recipe(kernel.recipe()); !fits)
    return Verified{Verdict::kWrongResult, fits.error().message};
  Verification verification(kernel, device, workload);
  TRY_STATUS(verification.allocate());
  // Inputs lie there when a launch begins: all of them may be read early, or none.
  for (const uint8_t poison : kPoisons) {
    const ReadyInputs ready = poison == kPoisons[0] ? ReadyInputs() : ReadyInputs::all();
    TRY(auto bad, verification.launch(poison, ready, alive, intact));
    if (!bad) continue;
    if (!device.device().is_lost()) TRY_STATUS(verification.restore());
    return *std::move(bad);
  }
  return Verified{};
}

Result<bool> references_intact(EvaluationDevice& device, const PreparedWorkload& workload) {
  TRY_STATUS(workload.check_expected());
  TRY(const std::vector<Tally> tallies, device.take());
  return workload.is_intact(tallies);
}

}  // namespace

Result<Verified> verify(const LoadedKernel& kernel, EvaluationDevice& device,
                        PreparedWorkload& workload, const Alive& alive, bool& intact) {
  std::vector<PreparedWorkload*> cases = {&workload};
  for (PreparedWorkload& other : workload.others()) cases.push_back(&other);
  Verified verified;
  for (PreparedWorkload* const each : cases) {
    TRY(verified, verify_at(kernel, device, *each, alive, intact));
    if (verified.verdict == Verdict::kOk) continue;
    if (each != &workload)
      verified.log = fmt::format("at sizes {}: {}", fmt::join(each->symbols(), ", "), verified.log);
    break;
  }
  // A stray write at one size may have met the reference of another, whose next kernel would be
  // blamed for it.
  for (size_t i = 0; cases.size() > 1 && i < cases.size(); ++i) {
    if (!intact || device.device().is_lost()) break;
    TRY(intact, references_intact(device, *cases[i]));
    if (!intact) verified = out_of_bounds("wrote far away, into memory of the runner");
  }
  return verified;
}

Result<std::vector<std::string>> launch_for_outputs(const LoadedKernel& kernel,
                                                    EvaluationDevice& device,
                                                    PreparedWorkload& workload, uint64_t launches) {
  TRY_STATUS(workload.check_recipe(kernel.recipe()));
  int64_t bytes = 0;
  for (const GuardedMemory& output : workload.outputs()) bytes += output.bytes;
  if (bytes > static_cast<int64_t>(kMaxJudgedBytes))
    return fail(Code::kUnsupported, "the outputs are too large for another process to judge");
  Verification verification(kernel, device, workload);
  TRY_STATUS(verification.allocate());
  return verification.launch_for_outputs(launches);
}

Result<Verified> judge_outputs(EvaluationDevice& device, PreparedWorkload& workload,
                               std::span<const std::string> outputs) {
  const auto& expected = workload.outputs();
  if (!std::ranges::equal(
          outputs, expected, {}, [](const std::string& bytes) { return std::ssize(bytes); },
          &GuardedMemory::bytes))
    return Verified{Verdict::kWrongResult, "its runner gave outputs of another size"};
  for (size_t i = 0; i < outputs.size(); ++i) {
    TRY_STATUS(device.device().copy_to_device(
        expected[i].data,
        {reinterpret_cast<const uint8_t*>(outputs[i].data()), outputs[i].size()}));
    TRY_STATUS(workload.compare_output(i, false));
  }
  TRY(const std::vector<Tally> tallies, device.take());
  TRY(auto wrong, wrong_outputs(device, workload, tallies, kPoisons[1]));
  return wrong ? *std::move(wrong) : Verified{};
}

}  // namespace kiln::runner
