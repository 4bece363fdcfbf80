// The JSON inside an archive, which checksums keep from mutations of the archive itself.
#include "compiler_core/base/check.h"
#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/pt2_archive.h"
#include "compiler_core/ir/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> models;
  for (const char* name : {"softmax", "matmul", "colsum", "attention", "batch_dynamic_mlp",
                           "embedding_sum", "cond_sin_cos", "conv_bn_relu"}) {
    const Path path = Path(KILN_GRAPHS_DIR) / "small" / (std::string(name) + ".pt2");
    if (const auto archive = Pt2Archive::open(path))
      models.push_back(archive->read_text("models/model.json").value());
  }
  return models;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = kiln::parse_exported_model(std::string(kiln::fuzz::text_of(data, size)));
  if (!model) return 0;
  const auto program = kiln::lower_exported_model(*model);
  if (program) CHECK(kiln::verify(program->graph), "a graph that was lowered is valid");
  return 0;
}
