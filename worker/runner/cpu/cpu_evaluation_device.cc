// The CPU as an EvaluationDevice. Work is done when a call returns.
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "compiler_core/base/clock.h"
#include "compiler_core/base/math.h"
#include "compiler_core/passes/specialise.h"
#include "compiler_core/runtime/cpu_device.h"
#include "worker/runner/evaluation_device.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr EvaluationDevice::Policy kPolicy = {
    .max_workloads = 24,  // as many as a model has kernels, whose candidates come in turn
    .kept_bytes = int64_t{2} << 30,
    .most_other_sizes = int64_t{16} << 20,
    .alignment = 64,
    .min_copies = 1,
    .max_copies = 4096,
    .min_warm_ups = 1,
    .max_warm_ups = 256,
    .warm_up_us = 2000,
    .sample_us = 50,
    .long_us = 50,
    .max_launches = 4096,
    .race_budget_us = 0.3e6,
    .final_budget_us = 3e6,
};
constexpr int64_t kPage = 4096;
constexpr int64_t kFence = 1 << 20;  // address space only
constexpr int64_t kChunk = 4096;     // elements
constexpr int kCalibrationRuns = 9;
constexpr int kCalibrationSteps = 1 << 16;

// Never twice the same over a vector's width, and unlike the poison of outputs (verify.h).
uint8_t pattern(int64_t index) {
  return static_cast<uint8_t>(0xA5 ^ (index * 37));
}

uint8_t* bytes_at(DevicePtr pointer) {
  return reinterpret_cast<uint8_t*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

Tensor tensor_at(DevicePtr data, DType dtype, std::vector<int64_t> sizes) {
  Tensor tensor(dtype, std::move(sizes));
  std::copy_n(bytes_at(data), tensor.byte_size(), tensor.bytes().begin());
  return tensor;
}

// The graph with constants for its symbols.
Result<Graph> at_sizes(const Graph& graph, std::span<const int64_t> symbols) {
  std::vector<Symbol> constants;
  for (const int64_t size : symbols) constants.push_back({{size, size}, size});
  return specialise(graph, constants);
}

// Each step depends on the one before, so that the time depends on the core's clock alone.
uint64_t chain(uint64_t x) {
  for (int i = 0; i < kCalibrationSteps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  return x;
}

class CpuEvaluationDevice : public EvaluationDevice {
 public:
  explicit CpuEvaluationDevice(std::shared_ptr<const CpuDevice> device)
      : EvaluationDevice(std::move(device), nullptr, kPolicy) {}

  // Beyond the guards, of a page at least, lie fences of 1 MiB that nobody may touch: a write
  // farther away kills the runner instead of corrupting it. The data is moved off the page
  // boundary, so that buffers that are used together do not all compete for the same cache sets.
  Result<GuardedMemory> allocate_guarded(std::string name, int64_t bytes) override {
    const int64_t skew = ++allocations_ * 7 % 61 * 64;
    const auto no_memory = [bytes] {
      return fail(Code::kUnavailable,
                  "no memory for a buffer of " + std::to_string(bytes) + " bytes");
    };
    if (bytes > INT64_MAX / 2) return no_memory();
    const int64_t readable = round_up(kPage + skew + bytes + kPage, kPage);
    const auto mapped = static_cast<size_t>(readable + 2 * kFence);
    void* map = ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return no_memory();
    std::shared_ptr<const void> owner(map, [map, mapped](const void*) { ::munmap(map, mapped); });
    uint8_t* const begin = static_cast<uint8_t*>(map) + kFence;
    if (::mprotect(begin, static_cast<size_t>(readable), PROT_READ | PROT_WRITE) != 0)
      return no_memory();
    GuardedMemory memory{std::move(name), device_ptr(begin + kPage + skew), bytes,
                         kPage + skew,    readable - kPage - skew - bytes,  std::move(owner)};
    TRY_STATUS(repair_guards(memory));
    return memory;
  }

  Status repair_guards(const GuardedMemory& memory) override {
    uint8_t* const data = bytes_at(memory.data);
    for (int64_t i = -memory.before; i < 0; ++i) data[i] = pattern(i);
    for (int64_t i = memory.bytes; i < memory.bytes + memory.behind; ++i) data[i] = pattern(i);
    return {};
  }

  Status check_guards(const GuardedMemory& memory) override {
    const uint8_t* const data = bytes_at(memory.data);
    Tally tally;
    for (int64_t i = 0; i < memory.before; ++i)
      if (data[-1 - i] != pattern(-1 - i)) note(tally, i);
    for (int64_t i = 0; i < memory.behind; ++i)
      if (data[memory.bytes + i] != pattern(memory.bytes + i)) note(tally, memory.before + i);
    tallies_.push_back(tally);
    return {};
  }

  Status draw(const InputDraw& draw, Floats floats, DevicePtr to) override {
    in_chunks(draw, floats, [&](int64_t begin, std::span<const uint8_t> drawn) {
      std::ranges::copy(drawn, bytes_at(to) + begin * size_of(draw.dtype));
    });
    if (drawn_.size() >= kMaxDrawn) drawn_.clear();
    drawn_[to] = {draw.seed, mix_of(to, draw.count() * size_of(draw.dtype))};
    return {};
  }

  // Drawing takes several times as long as a checksum: elements are drawn again to name the one
  // that was overwritten, and where draw() is not remembered.
  Status check_drawn(const InputDraw& draw, Floats floats, DevicePtr at) override {
    Tally tally;
    const auto known = drawn_.find(at);
    if (known != drawn_.end() && known->second.seed == draw.seed &&
        known->second.mix == mix_of(at, draw.count() * size_of(draw.dtype))) {
      tallies_.push_back(tally);
      return {};
    }
    const auto size = static_cast<size_t>(size_of(draw.dtype));
    in_chunks(draw, floats, [&](int64_t begin, std::span<const uint8_t> drawn) {
      const uint8_t* const now = bytes_at(at) + begin * size_of(draw.dtype);
      if (std::memcmp(now, drawn.data(), drawn.size()) == 0) return;
      for (size_t i = 0; i < drawn.size(); i += size)
        if (std::memcmp(now + i, &drawn[i], size) != 0)
          note(tally, begin + static_cast<int64_t>(i / size));
    });
    tallies_.push_back(tally);
    return {};
  }

  Status evaluate(const Graph& graph, std::span<const int64_t> symbols, Precision precision,
                  std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs) override {
    TRY(const Graph sized, symbols.empty() ? graph : at_sizes(graph, symbols));
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Node& node = sized.node(sized.inputs()[i]);
      std::vector<int64_t> sizes;
      for (const Dim& dim : node.shape) {
        TRY(const int64_t size, dim.evaluate({}));
        sizes.push_back(size);
      }
      tensors.push_back(tensor_at(inputs[i], node.dtype, std::move(sizes)));
    }
    std::vector<const Tensor*> pointers;
    for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
    {
      TRY(const std::vector<Tensor> results, interpret(sized, pointers, precision));
      for (size_t i = 0; i < outputs.size(); ++i)
        std::ranges::copy(results[i].bytes(), bytes_at(outputs[i]));
    }
    ::malloc_trim(0);  // the runner's malloc keeps everything, see runner_main.cc
    return {};
  }

  Status survey(DevicePtr data, DType dtype, int64_t count) override {
    TRY_STATUS(checksum(data, dtype, count));
    if (!is_float(dtype)) return {};
    Tally& tally = tallies_.back();
    const Tensor tensor = tensor_at(data, dtype, {count});
    for (int64_t i = 0; i < count; ++i) {
      const double x = tensor.get(i);
      if (std::isnan(x)) tally.first = std::min(tally.first, i);
      if (!std::isfinite(x)) continue;
      tally.sum += x * x;
      ++tally.count;
    }
    return {};
  }

  Status checksum(DevicePtr data, DType dtype, int64_t count) override {
    Tally tally;
    tally.mix = mix_of(data, count * size_of(dtype));
    tallies_.push_back(tally);
    return {};
  }

  Status compare(const Comparison& c) override {
    const Tensor got = tensor_at(c.got, c.dtype, {c.count});
    const Tensor want = tensor_at(c.want, c.dtype, {c.count});
    const Tensor declared = c.declared == 0 ? Tensor() : tensor_at(c.declared, c.dtype, {c.count});
    const auto difference = runner::compare(got, want, c.declared == 0 ? nullptr : &declared,
                                            {c.relative, false, c.scale});
    tallies_.push_back(difference ? Tally{difference->count, difference->first,
                                          static_cast<double>(difference->neighbours)}
                                  : Tally{});
    return {};
  }

  Result<std::vector<Tally>> take() override { return std::exchange(tallies_, {}); }

  Result<double> time_us(const std::function<Status(Stream)>& work) override {
    const auto start = Clock::now();
    TRY_STATUS(work(stream()));
    return us_since(start);
  }

  // A chain of dependent multiply-adds on the calling thread, about 2 ms in all. Other load on the
  // machine lengthens some runs, a lower clock all.
  Result<double> calibration_us() override {
    double least = INFINITY;
    volatile uint64_t seed = 1;  // so that nothing is computed before it is asked for
    for (int run = 0; run < kCalibrationRuns; ++run) {
      const auto start = Clock::now();
      seed = chain(seed);
      least = std::min(least, us_since(start));
    }
    return least;
  }

 private:
  struct Drawn {
    uint64_t seed = 0, mix = 0;
  };
  static constexpr size_t kMaxDrawn = 4096;

  // One changed word always changes it: each step is a bijection of what came before.
  static uint64_t mix_of(DevicePtr data, int64_t bytes) {
    uint64_t mix = 0;
    for (int64_t i = 0; i < bytes; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes_at(data) + i, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
      mix = (mix ^ word) * 0x9e3779b97f4a7c15u;
      mix ^= mix >> 32;
    }
    return mix;
  }

  static void note(Tally& tally, int64_t where) {
    ++tally.count;
    tally.first = std::min(tally.first, where);
  }

  // Calls `each` with the first element's index and the drawn bytes of one chunk after another.
  template <class Each>
  static void in_chunks(const InputDraw& draw, Floats floats, Each each) {
    for (int64_t begin = 0; begin < draw.count(); begin += kChunk) {
      Tensor chunk(draw.dtype, {std::min(kChunk, draw.count() - begin)});
      draw_elements(draw, floats, begin, chunk);
      each(begin, std::as_const(chunk).bytes());
    }
  }

  int64_t allocations_ = 0;
  std::unordered_map<DevicePtr, Drawn> drawn_;  // what draw() left, by address
  std::vector<Tally> tallies_;
};

}  // namespace

std::unique_ptr<EvaluationDevice> make_cpu_evaluation_device(int threads) {
  return std::make_unique<CpuEvaluationDevice>(CpuDevice::make(threads));
}

}  // namespace kiln::runner
