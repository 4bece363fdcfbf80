// Launch recipes and the manifest's entry of one kernel.
#include "compiler_core/base/check.h"
#include "compiler_core/program/program.h"
#include "tests/cache/samples.h"
#include "tests/compiler_core/program/launch_samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  const ProgramKernel kernel = samples::kernel(1).kernel;
  ProgramKernel library = kernel;
  library.recipe = samples::library_recipe();
  library.fallback = ProgramKernel::Fallback{"own", samples::mapped_recipe()};
  return {kernel_to_json(kernel),
          recipe_to_json(kernel.recipe),
          kernel_to_json(library),
          recipe_to_json(samples::library_recipe()),
          recipe_to_json(samples::mapped_recipe()),
          recipe_to_json(samples::early_recipe())};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = kiln::fuzz::text_of(data, size);
  if (const auto kernel = kiln::kernel_from_json(text)) {
    const auto again = kiln::kernel_from_json(kiln::kernel_to_json(*kernel));
    CHECK(again && *again == *kernel, "a kernel that was read can be written");
  }
  if (const auto recipe = kiln::recipe_from_json(text)) {
    const auto again = kiln::recipe_from_json(kiln::recipe_to_json(*recipe));
    CHECK(again && *again == *recipe, "a recipe that was read can be written");
  }
  return 0;
}
