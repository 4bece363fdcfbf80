#include "compiler_core/base/check.h"
#include "compiler_core/frontend/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  return files_of(".safetensors", 20'000);
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = kiln::parse_safetensors(kiln::fuzz::text_of(data, size));
  if (!tensors) return 0;
  size_t bytes = 0;
  for (const auto& [name, tensor] : *tensors) bytes += tensor.bytes().size();
  CHECK(bytes <= size, "no more came out than went in");
  return 0;
}
