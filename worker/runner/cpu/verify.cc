#include "worker/runner/cpu/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "worker/runner/cpu/guarded_buffer.h"

namespace kiln::runner {
namespace {

// As bytes: a NaN in every float type, and a plain number in every type.
constexpr uint8_t kPoisons[] = {0xFF, 0x5C};

Verified out_of_bounds(std::string log) {
  return {Verdict::kOutOfBounds, std::move(log)};
}

struct Lent {
  std::string name;  // "input 0", "output 1", "workspace"
  GuardedBuffer buffer;
};

struct LentBuffers {
  std::vector<Lent> inputs, outputs;
  std::vector<Lent> workspace;  // one, or none when the kernel needs none
  std::vector<void*> args;      // inputs, then outputs
};

Result<LentBuffers> lend(const WorkloadCase& workload, int64_t workspace_bytes) {
  LentBuffers lent;
  int64_t count = 0;
  const auto add = [&](std::vector<Lent>& to, std::string name, int64_t bytes) -> Status {
    const int64_t skew = ++count * 7 % 61 * 64;
    TRY(GuardedBuffer buffer, GuardedBuffer::allocate(bytes, skew));
    to.push_back({std::move(name), std::move(buffer)});
    return {};
  };
  for (size_t i = 0; i < workload.inputs().size(); ++i)
    TRY_STATUS(add(lent.inputs, fmt::format("input {}", i), workload.inputs()[i].byte_size()));
  for (size_t i = 0; i < workload.expected().size(); ++i)
    TRY_STATUS(add(lent.outputs, fmt::format("output {}", i), workload.expected()[i].byte_size()));
  if (workspace_bytes > 0) TRY_STATUS(add(lent.workspace, "workspace", workspace_bytes));
  for (const Lent& input : lent.inputs) lent.args.push_back(input.buffer.data());
  for (const Lent& output : lent.outputs) lent.args.push_back(output.buffer.data());
  return lent;
}

void prepare(const LentBuffers& lent, const WorkloadCase& workload, uint8_t poison) {
  for (size_t i = 0; i < lent.inputs.size(); ++i)
    std::ranges::copy(workload.inputs()[i].bytes(), lent.inputs[i].buffer.bytes().begin());
  for (const Lent& output : lent.outputs) output.buffer.fill(poison);
  for (const Lent& workspace : lent.workspace) workspace.buffer.fill(poison);
}

std::optional<Verified> check_guards(const std::vector<Lent>& buffers) {
  for (const Lent& lent : buffers) {
    const auto damage = lent.buffer.damage();
    if (!damage) continue;
    const int64_t end = static_cast<int64_t>(lent.buffer.bytes().size());
    if (*damage < 0)
      return out_of_bounds(fmt::format("wrote {} bytes before {}", -*damage, lent.name));
    return out_of_bounds(fmt::format("wrote {} bytes behind {}", *damage - end, lent.name));
  }
  return std::nullopt;
}

std::optional<Verified> check_inputs(const LentBuffers& lent, const WorkloadCase& workload) {
  for (size_t i = 0; i < lent.inputs.size(); ++i) {
    const auto now = lent.inputs[i].buffer.bytes();
    const auto before = workload.inputs()[i].bytes();
    if (std::ranges::equal(now, before)) continue;
    const auto byte = std::ranges::mismatch(now, before).in1 - now.begin();
    return out_of_bounds(fmt::format("wrote into {} at element {}", lent.inputs[i].name,
                                     byte / size_of(workload.inputs()[i].dtype())));
  }
  return std::nullopt;
}

std::optional<Verified> check_outputs(const LentBuffers& lent, WorkloadCase& workload,
                                      uint8_t poison) {
  for (size_t i = 0; i < lent.outputs.size(); ++i) {
    const Tensor& want = workload.expected()[i];
    Tensor got(want.dtype(), want.sizes());
    const auto bytes = lent.outputs[i].buffer.bytes();
    std::ranges::copy(bytes, got.bytes().begin());
    const auto difference = workload.compare_output(i, got);
    if (!difference) continue;
    const auto element =
        bytes.subspan(static_cast<size_t>(difference->first * size_of(want.dtype())),
                      static_cast<size_t>(size_of(want.dtype())));
    const bool unwritten = std::ranges::all_of(element, [=](uint8_t b) { return b == poison; });
    return Verified{
        Verdict::kWrongResult,
        fmt::format("{}: {}{}; {} of {} elements are wrong, relative tolerance {:.3g}",
                    lent.outputs[i].name, describe_element(got, want, difference->first),
                    unwritten ? " (left unwritten)" : "", difference->count, want.numel(),
                    workload.relative_tolerance())};
  }
  return std::nullopt;
}

Result<Verified> verify_at(const Kernel& kernel, WorkloadCase& workload, ThreadPool& pool,
                           const Alive& alive) {
  if (const auto fits = workload.check_recipe(kernel.recipe()); !fits)
    return Verified{Verdict::kWrongResult, fits.error().message};
  TRY(const int64_t workspace_bytes, kernel.recipe().workspace_bytes.evaluate(workload.symbols()));
  TRY(const LentBuffers lent, lend(workload, workspace_bytes));
  void* workspace = lent.workspace.empty() ? nullptr : lent.workspace[0].buffer.data();
  for (const uint8_t poison : kPoisons) {
    prepare(lent, workload, poison);
    alive();
    kernel.launch(lent.args, workload.symbols(), workspace, pool);
    for (const auto* buffers : {&lent.inputs, &lent.outputs, &lent.workspace})
      if (auto bad = check_guards(*buffers)) return *std::move(bad);
    if (auto bad = check_inputs(lent, workload)) return *std::move(bad);
    if (auto bad = check_outputs(lent, workload, poison)) return *std::move(bad);
  }
  return Verified{};
}

}  // namespace

Result<Verified> verify(const Kernel& kernel, WorkloadCase& workload, ThreadPool& pool,
                        const Alive& alive) {
  TRY(Verified measured, verify_at(kernel, workload, pool, alive));
  if (measured.verdict != Verdict::kOk) return measured;
  for (WorkloadCase& other : workload.others()) {
    TRY(Verified verified, verify_at(kernel, other, pool, alive));
    if (verified.verdict == Verdict::kOk) continue;
    verified.log = fmt::format("at sizes {}: {}", fmt::join(other.symbols(), ", "), verified.log);
    return verified;
  }
  return measured;
}

}  // namespace kiln::runner
