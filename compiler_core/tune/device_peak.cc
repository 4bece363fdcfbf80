#include "compiler_core/tune/device_peak.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "compiler_core/plan/row_update.h"

namespace kiln {
namespace {

struct KnownDevice {
  std::string_view model;  // a part of the name the driver gives
  std::string_view isa;    // what stands in when the model is not known
  double gb_per_s, f32_tflops, tf32_tflops, half_tflops;
  std::string_view source;
};

constexpr std::array<KnownDevice, 4> kKnown = {{
    {"H200", "sm_90", 4300, 67, 395, 790,
     "memory: a measured copy, 4.3 TB/s of the stated 4.8; dense bf16: 790 TFLOP/s, what long "
     "matmuls reach of the stated 989"},
    {"H100", "", 3350, 67, 495, 989, "as stated for the SXM model: 3.35 TB/s, 989 TFLOP/s bf16"},
    {"A100", "sm_80", 2039, 19.5, 156, 312, "as stated for 80 GB: 2.0 TB/s, 312 TFLOP/s bf16"},
    {"L4", "", 300, 30.3, 60, 121, "as stated: 300 GB/s, 121 TFLOP/s bf16"},
}};

DevicePeak peak_of(const KnownDevice& device, const std::string& note) {
  return {device.gb_per_s, device.f32_tflops * 1e3, device.tf32_tflops * 1e3,
          device.half_tflops * 1e3, note + std::string(device.source)};
}

}  // namespace

double DevicePeak::floor_us(const KernelCost& cost) const {
  const auto time_us = [](double work, double giga_per_s) {
    return giga_per_s > 0 ? work / giga_per_s * 1e-3 : 0;
  };
  const double contraction = cost.contracted == DType::kF32 || cost.contracted == DType::kF64
                                 ? f32_matmul_gflop_per_s
                                 : half_matmul_gflop_per_s;
  const double rest = static_cast<double>(cost.flops - cost.contraction_flops);
  return std::max(time_us(static_cast<double>(cost.bytes), gb_per_s),
                  time_us(static_cast<double>(cost.contraction_flops), contraction) +
                      time_us(rest, gflop_per_s));
}

DevicePeak cuda_peak(const Target& target) {
  for (const KnownDevice& device : kKnown)
    if (target.device_model.find(device.model) != std::string::npos)
      return peak_of(device, target.device_model + ", ");
  for (const KnownDevice& device : kKnown)
    if (!device.isa.empty() && target.isa.starts_with(device.isa))
      return peak_of(device, fmt::format("no device named: an {} is assumed, ", device.model));
  return {0, 0, 0, 0, "nothing is known about " + target.to_string()};
}

double impossible_us(const Workload& workload, const Target& target) {
  constexpr double kCoreGbPerS = 64 * 6;  // a vector of 64 bytes a cycle, at 6 GHz
  constexpr double kCacheOverMemory = 4;  // of a GPU
  const double gb_per_s = target.backend == Backend::kCuda
                              ? kCacheOverMemory * cuda_peak(target).gb_per_s
                              : kCoreGbPerS * std::max(target.units, 1);
  const Dim rows = rows_of_update(workload);
  double bytes = 0;
  for (const NodeId output : workload.graph.outputs()) {
    const Node& node = workload.graph.node(output);
    const Dim count = numel(node.shape);
    if (!count.is_constant()) return 0;
    bytes += static_cast<double>(count.constant()) * static_cast<double>(size_of(node.dtype));
  }
  bytes /= static_cast<double>(rows.constant());
  return gb_per_s > 0 ? bytes / gb_per_s * 1e-3 / 2 : 0;
}

DevicePeak cpu_peak(const Target& target, double clock_ghz, double measured_gb_per_s) {
  const int lanes = target.isa == "x86-64-v4" ? 16 : target.isa == "x86-64-v3" ? 8 : 4;
  const int cores = std::max(target.units, 1);
  const double gflops = cores * clock_ghz * lanes * 2 * 2;
  // Kiln's kernels widen half types: there is no faster arithmetic for them.
  return {
      measured_gb_per_s, gflops, gflops, gflops,
      fmt::format("memory: a copy measured here, {:.1f} GB/s; arithmetic: {} cores x {:.2f} GHz "
                  "x {} f32 lanes x 2 multiply-adds = {:.0f} GFLOP/s",
                  measured_gb_per_s, cores, clock_ghz, lanes, gflops)};
}

}  // namespace kiln
