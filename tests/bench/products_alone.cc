#include "tests/bench/products_alone.h"

#include <algorithm>
#include <map>

namespace kiln::bench {
namespace {

bool is_product(const ProgramKernel& kernel) {
  return kernel.family == "matmul" || kernel.family == "convolution" ||
         kernel.family == "attention";
}

// Ones: no value that arithmetic is slow with.
Status fill(AlignedBuffer& buffer, const TensorSpec& spec, int64_t elements) {
  TRY_STATUS(buffer.reserve(elements * size_of(spec.dtype)));
  if (spec.dtype == DType::kF32)
    std::fill_n(static_cast<float*>(buffer.data()), elements, 1.0F);
  else
    std::fill_n(static_cast<char*>(buffer.data()), elements * size_of(spec.dtype), char{0});
  return {};
}

}  // namespace

Result<ProductsAlone> ProductsAlone::load(const Program& program,
                                          std::span<const Artifact> artifacts,
                                          std::span<const int64_t> sizes) {
  ProductsAlone alone;
  std::map<int, size_t> loaded;  // by kernel of the program
  std::map<int, void*> memory;   // by buffer of the program
  int64_t most_workspace = 0;
  for (const Launch& launch : program.launches) {
    const auto kernel = static_cast<size_t>(launch.kernel);
    if (!is_product(program.kernels[kernel])) continue;
    if (loaded.try_emplace(launch.kernel, alone.kernels_.size()).second) {
      TRY(Kernel fresh, Kernel::load(artifacts[kernel]));
      alone.kernels_.push_back(std::move(fresh));
    }
    OneLaunch one;
    one.kernel = loaded.at(launch.kernel);
    for (const Dim& dim : launch.dims) {
      TRY(const int64_t value, dim.evaluate(sizes));
      one.dims.push_back(value);
    }
    for (const int index : launch.args) {
      const auto [at, fresh] = memory.try_emplace(index, nullptr);
      if (fresh) {
        const TensorSpec& spec = program.buffers[static_cast<size_t>(index)].spec;
        TRY(const int64_t elements, element_count(spec, sizes));
        TRY_STATUS(fill(alone.buffers_.emplace_back(), spec, elements));
        at->second = alone.buffers_.back().data();
      }
      one.args.push_back(at->second);
    }
    const Dim& workspace = program.kernels[kernel].recipe.workspace_bytes;
    TRY(const int64_t bytes, workspace.evaluate(one.dims));
    most_workspace = std::max(most_workspace, bytes);
    alone.launches_.push_back(std::move(one));
  }
  TRY_STATUS(alone.workspace_.reserve(most_workspace));
  return alone;
}

void ProductsAlone::run(ThreadPool& pool) {
  for (const OneLaunch& launch : launches_)
    kernels_[launch.kernel].launch(launch.args, launch.dims, workspace_.data(), pool);
}

}  // namespace kiln::bench
