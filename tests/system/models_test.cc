// Programs of models that torch.export wrote (2.11) and Kiln had once refused, computed wrong or
// compiled for minutes; see tests/gpu/RESULTS.md. Run through a service, against torch's outputs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

class Models : public OneService<> {
 protected:
  // One compile, however many sizes are expected.
  static void expect_right(const std::string& model, const std::vector<std::string>& sizes = {""}) {
    const std::string file = std::string(KILN_SOURCE_DIR) + "/tests/graphs/models/" + model;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Finished ran =
          ask({binary("kiln"), "run", file + ".pt2", "--expect", file + sizes[i] + ".safetensors",
               "--coordinator", service_->endpoint(), "--no-fallback", "--verify", "--json"});
      ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err << service_->log();
      const nlohmann::json report = ran.json();
      EXPECT_TRUE(report.at("compared").get<bool>()) << ran.out;
      EXPECT_EQ(report.at("cache"), i == 0 ? "tuned" : "hit") << ran.out;
    }
  }
};

TEST_F(Models, ACacheOfKeysIsWrittenInPlace) {
  expect_right("cache_write");
}
TEST_F(Models, AMeanOverMaximaOfAConvolution) {
  expect_right("conv3d_pool");
}
TEST_F(Models, LinearAttention) {
  expect_right("linear_attention");
}
TEST_F(Models, TwoLayersOfLstm) {
  expect_right("lstm");
}
TEST_F(Models, RoundTripsThroughHalves) {
  expect_right("mixed_precision");
}
TEST_F(Models, OneEncoderServesEveryBatchAndLength) {
  expect_right("dynamic_encoder", {".0", ".1", ".2"});
}

}  // namespace
}  // namespace kiln::testing
