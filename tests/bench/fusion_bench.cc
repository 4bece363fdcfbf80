// What fusion is worth: each program as planned against the same program op by op, through the same
// compiler, runtime and first-choice schedules, interleaved on this machine's CPU; and its arena
// against the sum of its temporaries. Op by op is said in two ways: each op of the user's model
// (softmax, layer_norm, linear, attention) its own kernel, as a framework runs it; and each op of
// Kiln's graph, into which those decompose (add, exp, reduce_sum, matmul).
//
//   fusion_bench [--json] [--threads=N] [--binaries=DIR] [RUNS] FILE...
//
// Default: 15 runs of tests/graphs/small on all cores. With a DIR binaries are kept there from one
// run to the next.
//
// A program that is one kernel either way reads 1 by construction, and one without temporaries has
// no arena: means are given with and without them. Beside each program stands what its products
// (convolutions, attention) take alone, as op by op runs them: were all else free, that is how much
// faster fusion could be. A program without any has no such bound; in the mean it counts as it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/runtime/cpu_device.h"
#include "compiler_core/runtime/executable.h"
#include "tests/bench/cached_compiler.h"
#include "tests/bench/kernel_tuner.h"
#include "tests/bench/products_alone.h"

namespace kiln::bench {
namespace {

struct Side {
  Executable executable;
  ProductsAlone products;
  size_t launches = 0;
  int64_t arena = 0, temporaries = 0;
  int temporary_buffers = 0;
  std::vector<double> samples;
};

std::vector<int64_t> hints_of(const Program& program) {
  std::vector<int64_t> sizes;
  for (const ProgramSymbol& symbol : program.symbols)
    sizes.push_back(std::max({symbol.hint, symbol.min, int64_t{1}}));
  return sizes;
}

Result<Side> make_side(const std::shared_ptr<const CpuDevice>& cpu, const NormalForm& form,
                       const KernelCompiler& compiler, const PartitionOptions& options) {
  TRY(Partition parts, partition(form.graph, options));
  TRY(Plan cut, plan(std::move(parts)));
  TRY(LocalCompilation made,
      compile_locally(std::move(cut), form.digest, host_cpu_target(), compiler, 2));
  const std::vector<int64_t> sizes = hints_of(made.program);
  const size_t launches = made.program.launches.size();
  TRY(const int64_t arena, made.program.arena_bytes.evaluate(sizes));
  int64_t temporaries = 0;
  int temporary_buffers = 0;
  for (const Buffer& buffer : made.program.buffers)
    if (buffer.kind == Buffer::Kind::kTemporary) {
      TRY(const int64_t elements, element_count(buffer.spec, sizes));
      temporaries += elements * size_of(buffer.spec.dtype);
      ++temporary_buffers;
    }
  TRY(ProductsAlone products, ProductsAlone::load(made.program, made.artifacts, sizes));
  TRY(Executable executable, Executable::load(cpu, std::move(made.program), made.artifacts));
  return Side{std::move(executable), std::move(products), launches, arena,
              temporaries,           temporary_buffers,   {}};
}

// Tensors of a program's inputs, and of its outputs.
struct Tensors {
  std::vector<Tensor> tensors;
  std::vector<void*> pointers;
  Status add(const TensorSpec& spec, std::span<const int64_t> sizes) {
    std::vector<int64_t> extents;
    for (const Dim& dim : spec.shape) {
      TRY(const int64_t extent, dim.evaluate(sizes));
      extents.push_back(extent);
    }
    tensors.emplace_back(spec.dtype, std::move(extents));
    fill_random(tensors.back());
    pointers.push_back(tensors.back().data());
    return {};
  }
};

struct Ratio {
  double fused_us = 0, ops_us = 0, core_us = 0;
  double products_us = 0;  // 0: has none
  size_t fused_launches = 0, ops_launches = 0, core_launches = 0;
  int64_t arena = 0, temporaries = 0;
  int temporary_buffers = 0;

  double times_faster() const { return ops_us / fused_us; }
  // Were all but the products free.
  double bound() const {
    return products_us > 0 ? std::max(ops_us / products_us, times_faster()) : times_faster();
  }
};

Result<Ratio> measure(const std::string& file, const KernelCompiler& compiler,
                      const std::shared_ptr<const CpuDevice>& cpu, int runs) {
  TRY(const ExportedProgram program, read_graph_file(file));
  TRY(const NormalForm form, normalise(program.graph));
  TRY(Side fused, make_side(cpu, form, compiler, {}));
  PartitionOptions apart;
  apart.fuse = false;
  TRY(Side ops, make_side(cpu, form, compiler, apart));
  apart.core_ops = true;
  TRY(Side core, make_side(cpu, form, compiler, apart));
  const Program& shape = fused.executable.program();
  const std::vector<int64_t> sizes = hints_of(shape);
  Tensors inputs, outputs;
  for (const Buffer& buffer : shape.buffers)
    if (buffer.kind == Buffer::Kind::kInput) TRY_STATUS(inputs.add(buffer.spec, sizes));
  for (const int buffer : shape.output_buffers)
    TRY_STATUS(outputs.add(shape.buffers[static_cast<size_t>(buffer)].spec, sizes));
  const std::vector<DevicePtr> in = device_ptrs(inputs.pointers);
  const std::vector<DevicePtr> out = device_ptrs(outputs.pointers);
  std::vector<double> products;
  for (int run = 0; run <= runs; ++run) {
    for (Side* side : {&fused, &ops, &core}) {
      Status status;
      const double us =
          microseconds_of([&] { status = side->executable.launch(in, out, nullptr, sizes); });
      TRY_STATUS(status);
      if (run > 0) side->samples.push_back(us);
    }
    if (ops.products.empty()) continue;
    const double us = microseconds_of([&] { ops.products.run(cpu->pool()); });
    if (run > 0) products.push_back(us);
  }
  return Ratio{median(fused.samples),  median(ops.samples), median(core.samples),
               median(products),       fused.launches,      ops.launches,
               core.launches,          fused.arena,         fused.temporaries,
               fused.temporary_buffers};
}

class GeometricMean {
 public:
  void add(double x) {
    logs_ += std::log(x);
    ++count_;
  }
  double value() const { return count_ == 0 ? 0 : std::exp(logs_ / count_); }
  int count() const { return count_; }

 private:
  double logs_ = 0;
  int count_ = 0;
};

// Over all programs, and over those whose plan has fewer launches than op by op.
struct Summary {
  GeometricMean all, fused, core, bound, bound_fused;
  double shares = 0, shares_of_several = 0;  // arena / temporaries
  int with_temporaries = 0, with_several = 0;
  int64_t arena = 0, temporaries = 0;

  void add(const Ratio& ratio) {
    all.add(ratio.times_faster());
    bound.add(ratio.bound());
    core.add(ratio.core_us / ratio.fused_us);
    if (ratio.fused_launches < ratio.ops_launches) {
      fused.add(ratio.times_faster());
      bound_fused.add(ratio.bound());
    }
    if (ratio.temporaries == 0) return;
    const double share = static_cast<double>(ratio.arena) / static_cast<double>(ratio.temporaries);
    shares += share;
    ++with_temporaries;
    arena += ratio.arena;
    temporaries += ratio.temporaries;
    if (ratio.temporary_buffers < 2) return;
    shares_of_several += share;
    ++with_several;
  }

  void print(bool json) const {
    const auto mean = [](double sum, int count) { return count == 0 ? 0 : sum / count; };
    fmt::print(
        fmt::runtime(
            json ? R"({{"programs":{},"geometric_mean":{:.3f},"fused_programs":{},)"
                   R"("geometric_mean_fused":{:.3f},"geometric_mean_core_ops":{:.3f},)"
                   R"("bound":{:.3f},"bound_fused":{:.3f},)"
                   R"("arena_share":{:.3f},"programs_with_temporaries":{},)"
                   R"("arena_share_of_several":{:.3f},"programs_with_several":{},)"
                   R"("arena_share_of_bytes":{:.3f}}})"
                   "\n"
                 : "{} programs: {:.2f} times faster than op by op (geometric mean); the {} that "
                   "are more launches op by op: {:.2f}; against each op of the graph: {:.2f}\n"
                   "were all but products, convolutions and attention free: {:.2f}; of those that "
                   "are more launches op by op: {:.2f}\n"
                   "arenas: {:.2f} of the temporaries in the mean of the {} programs that have "
                   "any, {:.2f} of the {} that have two or more, {:.2f} of all bytes together\n"),
        all.count(), all.value(), fused.count(), fused.value(), core.value(), bound.value(),
        bound_fused.value(), mean(shares, with_temporaries), with_temporaries,
        mean(shares_of_several, with_several), with_several,
        temporaries == 0 ? 0 : static_cast<double>(arena) / static_cast<double>(temporaries));
  }
};

std::vector<std::string> small_graphs() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KILN_GRAPHS_DIR "/small"))
    if (entry.path().extension() == ".pt2") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int run(std::vector<std::string> files, int runs, int threads, const std::string& binaries,
        bool json) {
  auto found = HostCompiler::find("");
  if (!found) {
    fmt::print(stderr, "{}\n", found.error().message);
    return 2;
  }
  const CachedCompiler compiler(std::move(*found), binaries);
  const auto cpu = CpuDevice::make(threads);
  Summary summary;
  if (files.empty()) files = small_graphs();
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).stem();
    const auto ratio = measure(file, compiler, cpu, runs);
    if (!ratio) {
      fmt::print(stderr, "{}: left out: {}\n", name, ratio.error().message);
      continue;
    }
    summary.add(*ratio);
    fmt::print(
        fmt::runtime(
            json ? R"({{"name":"{}","fused_us":{:.2f},"op_by_op_us":{:.2f},"core_ops_us":{:.2f},)"
                   R"("products_us":{:.2f},)"
                   R"("launches":{},"op_by_op_launches":{},"core_op_launches":{},)"
                   R"("arena_bytes":{},"temporary_bytes":{},"temporaries":{}}})"
                   "\n"
                 : "{:<20} us: fused {:>7.1f}  op by op {:>7.1f}  core ops {:>7.1f}  products "
                   "{:>7.1f}  launches {:>3} of {:>4} of {:>4}  arena {:>7} of {:>7} B in {:>3}\n"),
        name, ratio->fused_us, ratio->ops_us, ratio->core_us, ratio->products_us,
        ratio->fused_launches, ratio->ops_launches, ratio->core_launches, ratio->arena,
        ratio->temporaries, ratio->temporary_buffers);
    std::fflush(stdout);
  }
  summary.print(json);
  return summary.all.count() == 0 ? 2 : 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  bool json = false;
  int runs = 15, threads = 0;
  std::string binaries;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json")
      json = true;
    else if (argument.starts_with("--threads="))
      threads = std::max(0, std::atoi(argument.c_str() + 10));
    else if (argument.starts_with("--binaries="))
      binaries = argument.substr(11);
    else if (const int number = std::atoi(argv[i]); number > 0)
      runs = number;
    else
      files.push_back(argument);
  }
  return kiln::bench::run(std::move(files), runs, threads, binaries, json);
}
