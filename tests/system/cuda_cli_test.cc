// `kiln` and GPUs, as scripts see it: on the fake driver and the fake NVRTC, without a service.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/base/digest.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

#ifdef KILN_FAKE_LIBCUDA

using nlohmann::json;

constexpr char kNowhere[] = "/nonexistent/lib.so";

class GpuCommands : public ::testing::Test {
 protected:
  // `kiln ... --libcuda the fake one --libnvrtc likewise`.
  static Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    return run(arguments, {std::string("KILN_LIBCUDA=") + KILN_FAKE_LIBCUDA,
                           std::string("KILN_LIBNVRTC=") + KILN_FAKE_LIBNVRTC});
  }

  TempDir dir_ = *TempDir::create();
};

TEST_F(GpuCommands, RunGivesTheExpectedAnswerAndSaysWhereTheTimeWent) {
  for (const char* extra : {"--json", "--reduce-overhead"}) {
    const Finished ran =
        kiln({"run", small_graph("softmax.pt2"), "--target", "cuda", "--mode", "default",
              "--expect", small_graph("softmax.safetensors"), "--runs", "10", "--json", extra});
    ASSERT_EQ(ran.exit_code, 0) << ran.err << ran.out;
    const json report = ran.json();
    EXPECT_EQ(report["ok"], true);
    EXPECT_EQ(report["compared"], true);
    EXPECT_EQ(report["cache"], "local");
    EXPECT_EQ(report["target"], "cuda:sm_90a");
    EXPECT_FALSE(report["device"].get<std::string>().empty());
    EXPECT_GT(report["median_us"].get<double>(), 0);
    double parts = 0;
    for (const char* part : {"read_ms", "context_ms", "fetch_ms", "load_ms", "first_launch_ms"}) {
      ASSERT_TRUE(report["timings"][part].is_number()) << part;
      parts += report["timings"][part].get<double>();
    }
    EXPECT_GT(parts, 0);
    for (const char* part : {"exec_ms", "context_wait_ms", "inputs_ms", "upload_ms", "total_ms"})
      EXPECT_TRUE(report["timings"][part].is_number()) << part;
  }
}

TEST_F(GpuCommands, WithoutAGpuCompileMakesThePrograms) {
  const std::string out = (dir_.path() / "made").string();
  const Finished made = kiln({"compile", small_graph("softmax.pt2"), "--target", "cuda:sm_90a",
                              "--libcuda", kNowhere, "--out", out, "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.json()["target"], "cuda:sm_90a");
  const auto text = read_file(Path(out) / "manifest.json");
  ASSERT_TRUE(text) << text.error().message;
  const json manifest = json::parse(*text);
  ASSERT_FALSE(manifest["kernels"].empty());
  for (const json& kernel : manifest["kernels"]) {
    const auto cubin = read_file(Path(out) / (kernel["blob"].get<std::string>() + ".cubin"));
    ASSERT_TRUE(cubin) << cubin.error().message;
    EXPECT_EQ(Digest::of(*cubin).hex(), kernel["blob"]);
  }
}

TEST_F(GpuCommands, WhatCannotBeDoneHereIsSaidWithItsExitCode) {
  const std::string file = small_graph("softmax.pt2");
  const Finished no_gpu = kiln({"run", file, "--target", "cuda:sm_90a", "--libcuda", kNowhere});
  EXPECT_EQ(no_gpu.exit_code, 6) << no_gpu.err;
  EXPECT_NE(no_gpu.err.find("cannot run code for cuda:sm_90a on this machine"), std::string::npos)
      << no_gpu.err;
  const Finished which = kiln({"compile", file, "--target", "cuda", "--libcuda", kNowhere});
  EXPECT_EQ(which.exit_code, 6) << which.err;
  EXPECT_NE(which.err.find("cuda:sm_90a"), std::string::npos) << which.err;
  const Finished no_nvrtc = kiln({"compile", file, "--target", "cuda", "--libnvrtc", kNowhere});
  EXPECT_EQ(no_nvrtc.exit_code, 3) << no_nvrtc.err;
  EXPECT_NE(no_nvrtc.err.find("KILN_LIBNVRTC"), std::string::npos) << no_nvrtc.err;
  EXPECT_EQ(kiln({"compile", file, file, "--out", dir_.path().string()}).exit_code, 2);
  EXPECT_EQ(kiln({"compile", file, "--target", "cuda:sm_9"}).exit_code, 2);
}

TEST_F(GpuCommands, ASearchThatNoWorkerCanDoFailsAtOnceAndNamesTheTargetsThereAre) {
  const Service service(dir_.path() / "data");
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const std::string file = small_graph("softmax.pt2");
  const Finished search = kiln({"compile", file, "--target", "cuda:sm_90a", "--mode",
                                "max-autotune", "--coordinator", service.endpoint(), "--json"});
  EXPECT_EQ(search.exit_code, 3) << search.out;
  EXPECT_EQ(search.json()["error"]["code"], "unavailable");
  EXPECT_NE(search.err.find("no worker for cuda:sm_90a"), std::string::npos) << search.err;
  EXPECT_NE(search.err.find("cpu:x86-64"), std::string::npos) << search.err;
  const Finished guess = kiln(
      {"compile", file, "--target", "cuda:sm_90a", "--coordinator", service.endpoint(), "--json"});
  EXPECT_EQ(guess.exit_code, 0) << guess.err;
  EXPECT_EQ(guess.json()["cache"], "local");
}

TEST_F(GpuCommands, ANewProcessRunsWhatTheLocalTierHas) {
  const std::string file = small_graph("softmax.pt2"), cache = (dir_.path() / "cache").string();
  ASSERT_EQ(kiln({"compile", file, "--target", "cuda", "--cache-dir", cache}).exit_code, 0);
  const Finished again =
      kiln({"run", file, "--target", "cuda", "--cache-dir", cache, "--no-fallback", "--libnvrtc",
            kNowhere, "--expect", small_graph("softmax.safetensors"), "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json()["cache"], "hit");
}

#endif  // KILN_FAKE_LIBCUDA

}  // namespace
}  // namespace kiln::testing
