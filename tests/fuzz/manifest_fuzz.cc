// Manifests of programs, as a coordinator or a disk may have damaged them.
#include "compiler_core/base/check.h"
#include "compiler_core/program/program.h"
#include "tests/cache/samples.h"
#include "tests/compiler_core/program/launch_samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  Program symbolic = samples::program(2);
  symbolic.kernels.push_back(samples::kernel(3).kernel);
  symbolic.buffers.push_back({Buffer::Kind::kTemporary, 0, {DType::kF16, {8, 16}}, 64});
  symbolic.arena_bytes = 4096;
  symbolic.launches.push_back({1, {1, 2}, {}});
  Program library = samples::program(4);
  ProgramKernel& product = library.kernels[0];
  product.recipe = samples::library_recipe();
  product.fallback = ProgramKernel::Fallback{"own", samples::mapped_recipe()};
  library.buffers.clear();
  for (int i = 0; i < 3; ++i)
    library.buffers.push_back(
        {Buffer::Kind::kInput, i, product.recipe.inputs[static_cast<size_t>(i)], 0});
  library.buffers.push_back({Buffer::Kind::kOutput, 0, product.recipe.outputs[0], 0});
  library.launches = {{0, {0, 1, 2, 3}, {}}};
  library.output_buffers = {3};
  Program early = library;
  early.kernels[0].recipe = samples::early_recipe();
  early.kernels[0].fallback = {};
  return {program_to_json(samples::program(1)), program_to_json(symbolic), program_to_json(library),
          program_to_json(early)};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = kiln::program_from_json(kiln::fuzz::text_of(data, size));
  if (!program) return 0;
  const auto again = kiln::program_from_json(kiln::program_to_json(*program));
  CHECK(again && *again == *program, "a manifest that was read can be written");
  (void)kiln::sample_sizes(*program);
  return 0;
}
