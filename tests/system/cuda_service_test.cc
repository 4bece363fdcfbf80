// `kiln up` with a GPU (the fake one): a search from a machine without a GPU, and what a machine
// with one finds of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/process.h"

#ifdef KILN_FAKE_LIBCUDA

namespace kiln::testing {
namespace {

using nlohmann::json;

constexpr char kGraph[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[1024]\n"
    "%1 = input 1 : f32[1024]\n"
    "%2 = add %0 %1 : f32[1024]\n"
    "return %2\n";

class GpuService : public ::testing::Test {
 protected:
  GpuService() : dir_(*TempDir::create()) {
    EXPECT_TRUE(write_file(dir_.path() / "add.kiln", kGraph));
  }
  Finished compile(const Service& service, const std::string& target,
                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        binary("kiln"), "compile", dir_.path() / "add.kiln", "--target",        target, "--mode",
        "max-autotune", "--json",  "--coordinator",          service.endpoint()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  TempDir dir_;
};

TEST_F(GpuService, WhatIsTunedWithoutAGpuIsAHitWithOne) {
  const Service service(dir_.path() / "data", {"--device", "cuda:0", "--libcuda", KILN_FAKE_LIBCUDA,
                                               "--libnvrtc", KILN_FAKE_LIBNVRTC});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const json stats =
      run({binary("kiln"), "stats", "--json", "--coordinator", service.endpoint()}).json();
  ASSERT_EQ(stats["workers"].size(), 1u);
  EXPECT_EQ(stats["workers"][0]["name"], "local-cuda:0");
  EXPECT_EQ(stats["workers"][0]["target"], "cuda:sm_90a");
  EXPECT_TRUE(stats["workers"][0]["toolkit"].get<std::string>().starts_with("nvrtc 13."));

  const Finished tuned = compile(service, "cuda:sm_90a");
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service.log();
  EXPECT_EQ(tuned.json()["cache"], "tuned");
  EXPECT_GT(tuned.json()["kernels"][0]["measured"].get<int>(), 0) << tuned.out;

  const Finished hit = compile(service, "cuda", {"--libcuda", KILN_FAKE_LIBCUDA, "--check"});
  EXPECT_EQ(hit.exit_code, 0) << hit.err;
  EXPECT_EQ(hit.json()["cache"], "hit");
}

TEST_F(GpuService, ASearchThatNobodyCanRunFailsAtOnceAndNamesWhatThereIs) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const Finished refused = compile(service, "cuda:sm_90a");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("cuda:sm_90a"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("cpu:x86-64"), std::string::npos) << refused.err;
}

TEST_F(GpuService, AGpuThatIsNotThereIsSaid) {
  const Finished up = run({binary("kiln"), "up", "--data-dir", dir_.path() / "data", "--listen",
                           "tcp://127.0.0.1:0", "--device", "cuda:7", "--libcuda",
                           KILN_FAKE_LIBCUDA, "--libnvrtc", KILN_FAKE_LIBNVRTC});
  EXPECT_EQ(up.exit_code, 2) << up.out;
  EXPECT_NE(up.err.find("cuda:7"), std::string::npos) << up.err;
}

}  // namespace
}  // namespace kiln::testing

#endif
