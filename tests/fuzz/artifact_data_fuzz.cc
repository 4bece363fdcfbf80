// Artifacts that are data, as anybody with a submit key may put them.
#include "schema/artifact_kinds.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  return {R"({"a": 1.5, "b": null})", R"({"XBLOCK": 128, "configs_hash": "ab+/=", "x": false})",
          R"({"a": {"b": [1, 2]}})", "{}"};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)kiln::check_artifact_data(kiln::fuzz::text_of(data, size)).has_value();
  return 0;
}
