// Models as no exporter writes them. What is read is a valid graph; external data is nobody's, since
// the bytes have no folder.
#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"
#include "compiler_core/frontend/onnx/onnx_program.h"
#include "compiler_core/ir/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> models;
  for (const char* name : {"attention", "convolutions", "quantised"})
    models.push_back(read_file(Path(KILN_GRAPHS_DIR) / "onnx" / name / "model.onnx").value());
  return models;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = kiln::read_onnx_bytes(kiln::fuzz::text_of(data, size), std::nullopt);
  if (program) CHECK(kiln::verify(program->graph), "a graph that was read is valid");
  return 0;
}
