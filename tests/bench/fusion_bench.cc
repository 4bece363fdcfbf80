// What fusion is worth: each program as planned against the same program op by op (each op of the
// user's model its own kernel), both with first-choice schedules, interleaved on this machine's
// CPU; and its arena against the sum of its temporaries.
//
//   fusion_bench [--json] [RUNS] FILE...      default: 15 runs of tests/graphs/small
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/frontend/graph_file.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/runtime/executable.h"
#include "tests/bench/kernel_tuner.h"

namespace kiln::bench {
namespace {

struct Side {
  Executable executable;
  size_t launches = 0;
  int64_t arena = 0, temporaries = 0;
  std::vector<double> samples;
};

std::vector<int64_t> hints_of(const Program& program) {
  std::vector<int64_t> sizes;
  for (const ProgramSymbol& symbol : program.symbols)
    sizes.push_back(std::max({symbol.hint, symbol.min, int64_t{1}}));
  return sizes;
}

Result<Side> make_side(const NormalForm& form, const HostCompiler& compiler, bool fuse) {
  TRY(Partition parts, partition(form.graph, {.fuse = fuse, .after = {}}));
  TRY(Plan cut, plan(std::move(parts)));
  TRY(LocalCompilation made,
      compile_locally(std::move(cut), form.digest, host_cpu_target(), compiler, 2));
  const std::vector<int64_t> sizes = hints_of(made.program);
  const size_t launches = made.program.launches.size();
  TRY(const int64_t arena, made.program.arena_bytes.evaluate(sizes));
  int64_t temporaries = 0;
  for (const Buffer& buffer : made.program.buffers)
    if (buffer.kind == Buffer::Kind::kTemporary) {
      TRY(const int64_t elements, element_count(buffer.spec, sizes));
      temporaries += elements * size_of(buffer.spec.dtype);
    }
  TRY(Executable executable, Executable::load(std::move(made.program), made.artifacts));
  return Side{std::move(executable), launches, arena, temporaries, {}};
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
  double fused_us = 0, apart_us = 0;
  size_t fused_launches = 0, apart_launches = 0;
  int64_t arena = 0, temporaries = 0;
};

Result<Ratio> measure(const std::string& file, const HostCompiler& compiler, ThreadPool& pool,
                      int runs) {
  TRY(const ExportedProgram program, read_graph_file(file));
  TRY(const NormalForm form, normalise(program.graph));
  TRY(Side fused, make_side(form, compiler, true));
  TRY(Side apart, make_side(form, compiler, false));
  const Program& shape = fused.executable.program();
  const std::vector<int64_t> sizes = hints_of(shape);
  Tensors inputs, outputs;
  for (const Buffer& buffer : shape.buffers)
    if (buffer.kind == Buffer::Kind::kInput) TRY_STATUS(inputs.add(buffer.spec, sizes));
  for (const int buffer : shape.output_buffers)
    TRY_STATUS(outputs.add(shape.buffers[static_cast<size_t>(buffer)].spec, sizes));
  for (int run = 0; run <= runs; ++run)
    for (Side* side : {&fused, &apart}) {
      Status status;
      const double us = microseconds_of(
          [&] { status = side->executable.run(inputs.pointers, outputs.pointers, pool, sizes); });
      TRY_STATUS(status);
      if (run > 0) side->samples.push_back(us);
    }
  return Ratio{median(fused.samples), median(apart.samples), fused.launches,
               apart.launches,        fused.arena,           fused.temporaries};
}

std::vector<std::string> small_graphs() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KILN_GRAPHS_DIR "/small"))
    if (entry.path().extension() == ".pt2") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int run(std::vector<std::string> files, int runs, bool json) {
  const auto compiler = HostCompiler::find("");
  if (!compiler) {
    fmt::print(stderr, "{}\n", compiler.error().message);
    return 2;
  }
  ThreadPool pool(0);
  double logs = 0, arena_share = 0;
  int counted = 0, with_temporaries = 0;
  if (files.empty()) files = small_graphs();
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).stem();
    const auto ratio = measure(file, *compiler, pool, runs);
    if (!ratio) {
      fmt::print(stderr, "{}: left out: {}\n", name, ratio.error().message);
      continue;
    }
    logs += std::log(ratio->apart_us / ratio->fused_us);
    ++counted;
    if (ratio->temporaries > 0) {
      arena_share += static_cast<double>(ratio->arena) / static_cast<double>(ratio->temporaries);
      ++with_temporaries;
    }
    fmt::print(
        fmt::runtime(
            json ? R"({{"name":"{}","fused_us":{:.2f},"op_by_op_us":{:.2f},"launches":{},)"
                   R"("op_by_op_launches":{},"arena_bytes":{},"temporary_bytes":{}}})"
                   "\n"
                 : "{:<20} fused {:>10.1f} us  op by op {:>10.1f} us  launches {:>3} of {:>4}  "
                   "arena {:>8} of {:>8} B\n"),
        name, ratio->fused_us, ratio->apart_us, ratio->fused_launches, ratio->apart_launches,
        ratio->arena, ratio->temporaries);
    std::fflush(stdout);
  }
  const double mean = counted == 0 ? 0 : std::exp(logs / counted);
  const double share = with_temporaries == 0 ? 0 : arena_share / with_temporaries;
  fmt::print(
      fmt::runtime(
          json ? R"({{"programs":{},"geometric_mean":{:.3f},"arena_share":{:.3f}}})"
                 "\n"
               : "{} programs: {:.2f} times faster (geometric mean); arenas are {:.2f} of their "
                 "temporaries\n"),
      counted, mean, share);
  return counted == 0 ? 2 : 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  bool json = false;
  int runs = 15;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json")
      json = true;
    else if (const int number = std::atoi(argv[i]); number > 0)
      runs = number;
    else
      files.push_back(argument);
  }
  return kiln::bench::run(std::move(files), runs, json);
}
