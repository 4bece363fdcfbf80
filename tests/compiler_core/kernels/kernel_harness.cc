#include "tests/compiler_core/kernels/kernel_harness.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/runtime/kernel.h"
#include "tests/support/fake_cuda/host_launch.h"
#include "tests/support/kept_compiler.h"

namespace kiln::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kPoison = 0xa5;

// `bytes` that end less than 64 bytes in front of a page that can't be touched, and start after
// another.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes) {
    const size_t padded = (bytes + 63) / 64 * 64;
    const size_t pages = (padded + kPage - 1) / kPage + 2;
    mapped_ = pages * kPage;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(base_ != MAP_FAILED, "memory for a test");
    std::memset(base_, kPoison, mapped_);
    data_ = base_ + mapped_ - kPage - padded;
    CHECK(mprotect(base_, kPage, PROT_NONE) == 0, "guard page");
    CHECK(mprotect(base_ + mapped_ - kPage, kPage, PROT_NONE) == 0, "guard page");
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        bytes_(other.bytes_),
        mapped_(other.mapped_) {}
  ~GuardedBuffer() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }
  uint8_t* data() const { return data_; }
  bool intact() const {
    for (const uint8_t* p = base_ + kPage; p < base_ + mapped_ - kPage; ++p)
      if ((p < data_ || p >= data_ + bytes_) && *p != kPoison) return false;
    return true;
  }

 private:
  uint8_t* base_;
  uint8_t* data_;
  size_t bytes_, mapped_;
};

const KernelCompiler& compiler() {
  static const KeptCompiler kept(*HostCompiler::find());
  return kept;
}

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

struct Tolerance {
  double absolute, relative;
};
Tolerance tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {1e-10, 1e-9};
    case DType::kF32:
      return {2e-5, 2e-5};
    case DType::kF16:
      return {4e-3, 4e-3};
    case DType::kBF16:
      return {3e-2, 3e-2};
    default:
      return {0, 0};
  }
}

}  // namespace

std::vector<Tensor> random_inputs(const Graph& graph, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    Tensor tensor(node.dtype, constant_sizes(node.shape));
    std::uniform_real_distribution<double> real(-2, 2);
    std::uniform_int_distribution<int64_t> whole(node.dtype == DType::kU8 ? 0 : -9, 9);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      if (is_float(node.dtype))
        tensor.set(i, real(random));
      else
        tensor.set_int(i, node.dtype == DType::kBool ? random() & 1 : whole(random));
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

namespace {

Result<std::vector<Tensor>> run_kernel(const Kernel& kernel, std::span<const Tensor> inputs,
                                       std::span<const int64_t> dims) {
  std::vector<GuardedBuffer> buffers;
  std::vector<void*> args;
  for (const Tensor& tensor : inputs) {
    buffers.emplace_back(static_cast<size_t>(tensor.byte_size()));
    std::memcpy(buffers.back().data(), tensor.data(), static_cast<size_t>(tensor.byte_size()));
  }
  std::vector<Tensor> outputs;
  for (const TensorSpec& spec : kernel.recipe().outputs) {
    std::vector<int64_t> sizes;
    for (const Dim& size : spec.shape) {
      TRY(const int64_t value, size.evaluate(dims));
      sizes.push_back(value);
    }
    outputs.emplace_back(spec.dtype, std::move(sizes));
    buffers.emplace_back(static_cast<size_t>(outputs.back().byte_size()));
  }
  for (const KeptOutput& each : kernel.recipe().kept) {
    const Tensor& held = inputs[static_cast<size_t>(each.input)];
    std::memcpy(buffers[inputs.size() + static_cast<size_t>(each.output)].data(), held.data(),
                static_cast<size_t>(held.byte_size()));
  }
  TRY(const int64_t workspace, kernel.recipe().workspace_bytes.evaluate(dims));
  buffers.emplace_back(static_cast<size_t>(workspace));
  for (size_t i = 0; i + 1 < buffers.size(); ++i) args.push_back(buffers[i].data());
  kernel.launch(args, dims, buffers.back().data(), pool());
  for (size_t i = 0; i < buffers.size(); ++i)
    if (!buffers[i].intact())
      return fail(Code::kInternal, fmt::format("wrote outside buffer {}", i));
  for (size_t i = 0; i < outputs.size(); ++i)
    std::memcpy(outputs[i].data(), args[inputs.size() + i],
                static_cast<size_t>(outputs[i].byte_size()));
  return outputs;
}

}  // namespace

Result<std::vector<Tensor>> run_source(const Source& source, const Target& target,
                                       std::span<const Tensor> inputs) {
  if (target.backend == Backend::kCuda) return run_on_fake_gpu(source, inputs);
  TRY(const Artifact artifact, compiler().compile(source, target, 60'000));
  TRY(const Kernel kernel, Kernel::load(artifact));
  return run_kernel(kernel, inputs, {});
}

std::string disagreement(const Graph& graph, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : inputs) pointers.push_back(&tensor);
  const auto expected = interpret(graph, pointers, Precision::kHigh);
  if (!expected) return expected.error().message;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor &want = (*expected)[k], &got = outputs[k];
    const Tolerance allowed = tolerance(got.dtype());
    for (int64_t i = 0; i < got.numel(); ++i) {
      const bool exact = !is_float(got.dtype());
      if (exact && got.get_int(i) == want.get_int(i)) continue;
      const double g = got.get(i), w = want.get(i);
      if (!exact && (g == w || (std::isnan(g) && std::isnan(w)) ||
                     std::fabs(g - w) <= allowed.absolute + allowed.relative * std::fabs(w)))
        continue;
      return fmt::format("output {} [{}]: got {}, want {}", k, i, g, w);
    }
  }
  return "";
}

std::string check_schedule(const Workload& workload, const Schedule& schedule, const Target& target,
                           std::span<const Tensor> inputs) {
  const auto check = [&]() -> Result<std::string> {
    TRY(const Source source, lower_to_source(workload, schedule, target));
    TRY(const std::vector<Tensor> outputs, run_source(source, target, inputs));
    return disagreement(workload.graph, inputs, outputs);
  };
  const Result<std::string> outcome = check();
  const std::string wrong = outcome ? *outcome : outcome.error().message;
  return wrong.empty() ? "" : target.to_string() + " " + schedule.to_string() + ": " + wrong;
}

std::string check_with_random_inputs(const Workload& workload, const Schedule& schedule,
                                     const Target& target, unsigned seed) {
  std::mt19937 random(seed);
  const std::string wrong =
      check_schedule(workload, schedule, target, random_inputs(workload.graph, random));
  return wrong.empty() ? "" : wrong + "\n" + print(workload.graph);
}

std::string check_sizes(const Workload& workload, const Schedule& schedule, const Target& target,
                        const std::vector<std::vector<int64_t>>& sizes) {
  std::mt19937 random(21);
  const bool cuda = target.backend == Backend::kCuda;
  const auto check = [&]() -> Result<std::string> {
    TRY(const Source source, lower_to_source(workload, schedule, target));
    std::optional<Kernel> kernel;
    if (!cuda) {
      TRY(const Artifact artifact, compiler().compile(source, target, 60'000));
      TRY(kernel, Kernel::load(artifact));
    }
    for (const std::vector<int64_t>& dims : sizes) {
      TRY(const Workload sized, sized_workload(workload, dims));
      const std::vector<Tensor> inputs = random_inputs(sized.graph, random);
      TRY(const std::vector<Tensor> outputs,
          cuda ? run_on_fake_gpu(source, inputs, dims) : run_kernel(*kernel, inputs, dims));
      const std::string wrong = disagreement(sized.graph, inputs, outputs);
      if (!wrong.empty()) return fmt::format("at [{}]: {}", fmt::join(dims, ","), wrong);
    }
    return std::string();
  };
  const Result<std::string> outcome = check();
  const std::string wrong = outcome ? *outcome : outcome.error().message;
  return wrong.empty() ? "" : target.to_string() + " " + schedule.to_string() + ": " + wrong;
}

std::string check_space(const Workload& workload, const Target& target,
                        std::span<const Tensor> inputs, int limit) {
  const auto space = search_space(workload, target);
  if (!space) return space.error().message;
  const size_t size = space->size(), count = std::min(size, static_cast<size_t>(limit));
  for (size_t i = 0; i < count; ++i) {
    const std::string wrong = check_schedule(workload, (*space)[i * size / count], target, inputs);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

NodeId softmax(GraphBuilder& b, NodeId x, int axis) {
  const Shape shape = b.shape(x);
  const NodeId greatest = b.broadcast(b.reduce(Op::kReduceMax, x, {axis}, true), shape);
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, x, greatest));
  return b.binary(Op::kDiv, e, b.broadcast(b.reduce(Op::kReduceSum, e, {axis}, true), shape));
}

std::vector<Target> targets() {
  Target host = host_cpu_target();
  std::vector<Target> all = {host};
  host.isa = "x86-64-v3";
  if (host.isa != all[0].isa) all.push_back(host);
  return all;
}

Target hopper() {
  Target target = kHopper;
  target.units = 132;
  return target;
}

std::vector<Target> all_targets() {
  std::vector<Target> all = targets();
  all.push_back(kHopper);
  return all;
}

std::vector<Target> own_and_cuda() {
  return {targets()[0], kHopper};
}

}  // namespace kiln::testing
