// Kernels that somebody offers for a GPU (the fake one): as source, and as a binary that takes its
// arguments in an order of its own, as Triton's do. A thread of the fake GPU costs more than an element:
// offered kernels win clearly because each of their threads computes 16 elements.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/artifact_client.h"
#include "client/kernel_offer.h"
#include "compiler_core/compile/nvrtc_compiler.h"
#include "compiler_core/ir/text.h"
#include "tests/support/process.h"
#include "tests/support/slow_magnitude.h"
#include "tests/system/fake_gpu.h"

#ifdef KILN_FAKE_LIBCUDA

namespace kiln::testing {
namespace {

std::string slow_graph_text() {
  return slow_magnitude_text(4096);
}

class Candidates : public ::testing::Test {
 protected:
  Candidates() { EXPECT_TRUE(write_file(file_, slow_graph_text())); }
  std::string offer(const KernelOffer& offer) const {
    const auto made = make_offer(*parse_graph(slow_graph_text()), offer, {"", KILN_FAKE_LIBNVRTC});
    EXPECT_TRUE(made) << made.error().message;
    if (!made) return "";
    const auto client = *ArtifactClient::create({service_.endpoint()});
    const Status put =
        client->put(kOfferedKind, made->key(), offered_to_text(*made), std::chrono::seconds(20));
    EXPECT_TRUE(put) << put.error().message;
    return made->template_name();
  }
  // The winner, and how often a candidate was rejected.
  nlohmann::json kernel() const {
    const Finished done =
        ask({binary("kiln"), "compile", file_, "--target", "cuda:sm_90a", "--mode", "max-autotune",
             "--strict", "--json", "--coordinator", service_.endpoint()});
    EXPECT_EQ(done.exit_code, 0) << done.err << service_.log();
    return done.exit_code == 0 ? done.json()["kernels"][0] : nlohmann::json();
  }
  Finished run_it() const {
    return ask({binary("kiln"), "run", file_, "--target", "cuda", "--mode", "max-autotune",
                "--libcuda", KILN_FAKE_LIBCUDA, "--runs", "1", "--json", "--coordinator",
                service_.endpoint()});
  }

  const TempDir dir_ = *TempDir::create();
  const std::string file_ = (dir_.path() / "magnitude.kiln").string();
  const Target target_ = *Target::parse("cuda:sm_90a");
  const Service service_{dir_.path() / "data", worker_of_fake_gpu()};
};

TEST_F(Candidates, ASourceForAGpuWins) {
  const std::string name =
      offer({"magnitude",
             target_,
             {0, -1},
             KernelText{"KILN_INLINE void magnitude(const float* x, float* out) {\n"
                        "  for (int k = 0; k < 16; ++k) {\n"
                        "    const int i = block_index() * KILN_BLOCK + k * 32 + thread_index();\n"
                        "    if (i < KILN_ITEMS) out[i] = x[i] < 0 ? -x[i] : x[i];\n  }\n}\n",
                        "magnitude", 0, 512, 32}});
  EXPECT_EQ(kernel()["schedule"], name);
  const Finished ran = run_it();
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST_F(Candidates, ABinaryWinsAndIsLaunchedOnItsOwnArguments) {
  const auto nvrtc = Nvrtc::find(KILN_FAKE_LIBNVRTC);
  ASSERT_TRUE(nvrtc) << nvrtc.error().message;
  const auto compiled = NvrtcCompiler(*nvrtc).compile(
      {"extern \"C\" __global__ void theirs(float* out, const float* x, char* scratch, char* "
       "profile) {\n"
       "  if (scratch != nullptr || profile != nullptr) return;\n"
       "  for (unsigned k = 0; k < 16; ++k) {\n"
       "    const unsigned i = (blockIdx.x * 16 + k) * blockDim.x + threadIdx.x;\n"
       "    out[i] = x[i] < 0 ? -x[i] : x[i];\n  }\n}\n",
       {}},
      target_, 60'000);
  ASSERT_TRUE(compiled) << compiled.error().message;
  KernelBinary binary{compiled->binary, "theirs", 4096 / 512, 32};
  binary.null_pointers = 2;
  EXPECT_EQ(kernel()["schedule"].get<std::string>().substr(0, 15), "cuda.pointwise ");
  const std::string name = offer({"theirs", target_, {-1, 0}, binary});
  EXPECT_EQ(kernel()["schedule"], name);
  EXPECT_EQ(run_it().exit_code, 0);

  binary.blocks = 4;  // which leaves half of it unwritten
  const std::string half = offer({"half", target_, {-1, 0}, binary});
  const nlohmann::json after = kernel();
  EXPECT_EQ(after["schedule"], name) << "the earlier winner stays";
  EXPECT_GE(after["rejected"].get<int>(), 1);
}

}  // namespace
}  // namespace kiln::testing

#endif  // KILN_FAKE_LIBCUDA
