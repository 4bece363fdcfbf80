// Kiln's kernels against what a user would pick instead, on this machine's cores:
//   matmul, softmax, layernorm   oneDNN
//   pointwise and the rest       a plain loop under -O3 -march=native -fopenmp
// Each row is one interleaved run (Kiln, the other, a copy of as many bytes, and again); times are
// medians ("ratio") and the fastest rounds' ("best"), so a ratio holds where the machine drifts.
// Kiln's kernels are the best of their search space, tuned here through the real planner, code
// generator, compiler and runtime.
//
//   kernel_bench [--filter TEXT] [--threads N] [--candidates N] [--json]
#include <fmt/core.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "compiler_core/base/check.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/runtime/aligned_buffer.h"
#include "compiler_core/runtime/cpu_device.h"
#include "compiler_core/runtime/executable.h"
#include "tests/bench/kernel_cases.h"
#include "tests/bench/kernel_tuner.h"

namespace kiln::bench {
namespace {

constexpr int kFewestRounds = 7, kMostRounds = 51;
constexpr auto kTimeForRounds = std::chrono::seconds(3);

struct Row {
  std::string name, shape, against;
  size_t kernels = 0;
  int candidates = 0;
  double kiln_us = 0, first_us = 0, other_us = 0, copy_us = 0;
  double best_ratio = 0;  // of the fastest rounds: what a busy machine leaves of the truth
  double flops = 0, bytes = 0, max_abs_error = 0;
  bool memory_bound() const { return flops == 0; }
};

std::vector<Tensor> tensors_of(const Graph& graph, std::span<const NodeId> nodes) {
  std::vector<Tensor> tensors;
  for (const NodeId id : nodes) {
    tensors.emplace_back(graph.node(id).dtype, constant_sizes(graph.node(id).shape));
    fill_random(tensors.back());
  }
  return tensors;
}

double total_bytes(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.byte_size());
  return bytes;
}

// Over a few thousand elements; NaN counts as an infinite error.
double max_abs_error(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double error = 0;
  for (size_t k = 0; k < got.size(); ++k)
    for (int64_t i = 0; i < got[k].numel(); i += 1 + got[k].numel() / 4099) {
      const double difference = std::fabs(got[k].get(i) - want[k].get(i));
      error = std::max(error, std::isnan(difference) ? INFINITY : difference);
    }
  return error;
}

// Copies `bytes` / 2 from one half of its buffer to the other: as much traffic as a kernel that
// reads and writes `bytes` together.
class CopyProbe {
 public:
  explicit CopyProbe(double bytes) : half_(static_cast<int64_t>(bytes / 2)) {
    CHECK(buffer_.reserve(2 * half_ + 1).has_value(), "memory for a copy");
    std::memset(buffer_.data(), 1, static_cast<size_t>(2 * half_));
  }
  void run(ThreadPool& pool) { pool.run((half_ + kPiece - 1) / kPiece, copy, this); }

 private:
  static constexpr int64_t kPiece = 1 << 20;
  static void copy(void* context, int64_t begin, int64_t end, int) {
    const auto& probe = *static_cast<const CopyProbe*>(context);
    char* const from = static_cast<char*>(probe.buffer_.data());
    const int64_t at = begin * kPiece, to = std::min(end * kPiece, probe.half_);
    std::memcpy(from + probe.half_ + at, from + at, static_cast<size_t>(to - at));
  }
  int64_t half_;
  AlignedBuffer buffer_;
};

Result<Row> measure(const KernelCase& one, const Target& target, const HostCompiler& compiler,
                    const std::shared_ptr<const CpuDevice>& cpu, int candidates) {
  ThreadPool& pool = cpu->pool();
  TRY(const NormalForm form, normalise(one.graph));
  TRY(TunedProgram tuned, tune_program(form.graph, target, compiler, pool, candidates));
  Row row{one.name, one.shape, one.against, tuned.program.kernels.size()};
  row.flops = one.flops;
  double tuned_us = 0, first_us = 0;
  for (const ProgramKernel& kernel : tuned.program.kernels) {
    row.candidates += kernel.report.candidates;
    tuned_us += kernel.report.best_us;
    first_us += kernel.report.first_us;
    fmt::print(stderr, "  {}: {}\n", one.name, kernel.schedule);
  }
  TRY(const Executable executable,
      Executable::load(cpu, std::move(tuned.program), tuned.artifacts));

  std::vector<Tensor> inputs = tensors_of(one.graph, one.graph.inputs());
  std::vector<Tensor> outputs = tensors_of(one.graph, one.graph.outputs());
  std::vector<Tensor> expected = tensors_of(one.graph, one.graph.outputs());
  row.bytes = total_bytes(inputs) + total_bytes(outputs);
  std::vector<DevicePtr> in, out;
  for (const int index : form.input_order)
    in.push_back(device_ptr(inputs[static_cast<size_t>(index)].data()));
  for (Tensor& tensor : outputs) out.push_back(device_ptr(tensor.data()));
  const std::function<void()> other = one.reference(inputs, expected);
  CopyProbe probe(row.bytes);

  Status status;
  const auto kiln = [&] { status = executable.launch(in, out, nullptr); };
  const auto copy = [&] { probe.run(pool); };
  std::vector<double> kiln_us, other_us, copy_us;
  const auto end = std::chrono::steady_clock::now() + kTimeForRounds;
  for (int round = -1; round < kMostRounds; ++round) {  // round -1 warms up
    if (round >= kFewestRounds && std::chrono::steady_clock::now() > end) break;
    const double a = microseconds_of(kiln), b = microseconds_of(other), c = microseconds_of(copy);
    TRY_STATUS(status);
    if (round < 0) continue;
    kiln_us.push_back(a);
    other_us.push_back(b);
    copy_us.push_back(c);
  }
  row.kiln_us = median(kiln_us);
  row.first_us = row.kiln_us * first_us / tuned_us;
  row.other_us = median(other_us);
  row.copy_us = median(copy_us);
  row.best_ratio = *std::min_element(other_us.begin(), other_us.end()) /
                   *std::min_element(kiln_us.begin(), kiln_us.end());
  row.max_abs_error = max_abs_error(outputs, expected);
  return row;
}

void print_header(const Target& target, int threads) {
  fmt::print("{} ({}), {} threads on each side\n\n", target.device_model, target.isa, threads);
  fmt::print("{:<22} {:<16} {:>8} {:>9} {:>9} {:<10} {:>6} {:>6} {:>8} {:>7} {:>8} {:>9}\n",
             "kernel", "shape", "Kiln us", "1st guess", "other us", "against", "ratio", "best",
             "GFLOP/s", "GB/s", "of copy", "max error");
}

void print_row(const Row& row) {
  fmt::print(
      "{:<22} {:<16} {:>8.0f} {:>9.0f} {:>9.0f} {:<10} {:>6.2f} {:>6.2f} {:>8} {:>7.1f} {:>8} "
      "{:>9.1e}\n",
      row.name, row.shape, row.kiln_us, row.first_us, row.other_us, row.against,
      row.other_us / row.kiln_us, row.best_ratio,
      row.memory_bound() ? "" : fmt::format("{:.0f}", row.flops / row.kiln_us / 1e3),
      row.bytes / row.kiln_us / 1e3,
      row.memory_bound() ? fmt::format("{:.2f}", row.copy_us / row.kiln_us) : "",
      row.max_abs_error);
  std::fflush(stdout);
}

nlohmann::json to_json(const Row& row) {
  nlohmann::json json = {{"kernel", row.name},
                         {"shape", row.shape},
                         {"kernels", row.kernels},
                         {"candidates", row.candidates},
                         {"kiln_us", row.kiln_us},
                         {"first_guess_us", row.first_us},
                         {"other_us", row.other_us},
                         {"against", row.against},
                         {"ratio", row.other_us / row.kiln_us},
                         {"ratio_of_best", row.best_ratio},
                         {"copy_us", row.copy_us},
                         {"gb_per_s", row.bytes / row.kiln_us / 1e3},
                         {"max_abs_error", row.max_abs_error}};
  if (row.memory_bound())
    json["of_copy"] = row.copy_us / row.kiln_us;
  else
    json["gflop_per_s"] = row.flops / row.kiln_us / 1e3;
  return json;
}

Status run(const std::string& filter, int threads, int candidates, bool json) {
  const Target target = host_cpu_target();
  TRY(const HostCompiler compiler, HostCompiler::find());
  TRY(const std::vector<KernelCase> cases, kernel_cases(filter));
  const auto cpu = CpuDevice::make(threads);
  const ThreadPool& pool = cpu->pool();
  omp_set_num_threads(pool.threads());  // oneDNN and the plain loops
  nlohmann::json rows = nlohmann::json::array();
  if (!json) print_header(target, pool.threads());
  for (const KernelCase& one : cases) {
    TRY(const Row row, measure(one, target, compiler, cpu, candidates));
    if (json)
      rows.push_back(to_json(row));
    else
      print_row(row);
  }
  if (json)
    fmt::print("{}\n", nlohmann::json{{"machine", target.device_model},
                                      {"isa", target.isa},
                                      {"threads", pool.threads()},
                                      {"rows", rows}}
                           .dump());
  return {};
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  CLI::App app("Kiln's kernels against oneDNN, plain loops and a copy, interleaved");
  std::string filter;
  int threads = 0, candidates = 100;
  bool json = false;
  app.add_option("--filter", filter, "only rows whose name and shape contain this");
  app.add_option("--threads", threads, "threads on each side; 0: one a core");
  app.add_option("--candidates", candidates, "schedules tried a kernel, at most")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "one object on stdout");
  CLI11_PARSE(app, argc, argv);
  if (const auto status = kiln::bench::run(filter, threads, candidates, json); !status) {
    fmt::print(stderr, "kernel_bench: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
