// A step's row of a cache, tuned by a service, on the CPU and on the fake GPU. What it writes is so little
// that a kernel which wrote all of the cache could not be as quick.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/safetensors.h"
#include "tests/support/process.h"
#include "tests/system/fake_gpu.h"

namespace kiln::testing {
namespace {

constexpr const char* kGraph = R"(kiln.graph 1
%0 = input 0 : f32[4,1024,256]
%1 = input 1 : i64[]
%2 = input 2 : f32[4,256]
%3 = iota : i64[1024]
%4 = view %3 strides=[0,1,0] offset=[0] : i64[4,1024,256]
%5 = view %1 strides=[0,0,0] offset=[0] : i64[4,1024,256]
%6 = eq %4 %5 : bool[4,1024,256]
%7 = view %2 strides=[256,0,1] offset=[0] : f32[4,1024,256]
%8 = select %6 %7 %0 : f32[4,1024,256]
return %8
)";

class RowInPlace : public ::testing::Test {
 protected:
  RowInPlace() : dir_(*TempDir::create()) {
    Tensor cache(DType::kF32, {4, 1024, 256}), place(DType::kI64, {}), rows(DType::kF32, {4, 256});
    for (int64_t i = 0; i < cache.numel(); ++i) cache.set(i, static_cast<double>(i % 977));
    for (int64_t i = 0; i < rows.numel(); ++i) rows.set(i, static_cast<double>(-1 - i));
    place.set_int(0, 1000);
    Tensor written = cache.clone();
    for (int64_t i = 0; i < rows.numel(); ++i)
      written.set(((i / 256) * 1024 + 1000) * 256 + i % 256, rows.get(i));
    EXPECT_TRUE(write_file(graph_, kGraph));
    EXPECT_TRUE(write_safetensors(
        expected_, {{"in0", &cache}, {"in1", &place}, {"in2", &rows}, {"out0", &written}}));
  }

  void expect_tuned(const std::string& target, const std::vector<std::string>& device,
                    const std::vector<std::string>& driver) {
    const Service service(dir_.path() / "data", device);
    ASSERT_FALSE(service.endpoint().empty()) << service.log();
    std::vector<std::string> arguments = {
        binary("kiln"),     "run",          graph_,          "--target", target,
        "--mode",           "max-autotune", "--no-fallback", "--json",   "--coordinator",
        service.endpoint(), "--expect",     expected_};
    arguments.insert(arguments.end(), driver.begin(), driver.end());
    const Finished done = ask(arguments);
    ASSERT_EQ(done.exit_code, 0) << done.out << done.err << service.log();
    EXPECT_EQ(done.json()["cache"], "tuned") << done.out;
    const nlohmann::json kernel = done.json()["kernels"][0];
    EXPECT_EQ(kernel["family"], "row_update") << kernel;
    EXPECT_EQ(kernel["rejected"], 0) << kernel;
  }

  const TempDir dir_;
  const std::string graph_ = dir_.path() / "step.kiln";
  const std::string expected_ = dir_.path() / "expected.safetensors";
};

TEST_F(RowInPlace, IsTunedAndVerifiedOnTheCpu) {
  expect_tuned("cpu", {}, {});
}

#ifdef KILN_FAKE_LIBCUDA
TEST_F(RowInPlace, IsTunedAndVerifiedOnAGpu) {
  expect_tuned("cuda:sm_90a", worker_of_fake_gpu(), client_of_fake_gpu());
}
#endif

}  // namespace
}  // namespace kiln::testing
