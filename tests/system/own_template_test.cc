// A kernel template that lives in one file of tests/ (own_template/only_the_input.cc): listed by
// `kiln explain --candidates`, tuned, verified, winning and served, on the CPU and on the fake GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/safetensors.h"
#include "tests/support/process.h"
#include "tests/system/fake_gpu.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

constexpr int64_t kLongElements = 1 << 16;
// Sines that Kiln's own kernels compute and the template leaves out: what it saves does not hang
// on how busy this machine is.
constexpr int kSines = 24;

// x + 0 sin(x), again and again.
std::string sines_text() {
  const std::string type = "f32[" + std::to_string(kLongElements) + "]";
  std::string text = "kiln.graph 1\n%0 = input 0 : " + type + "\n%1 = constant 0x0p+0 : f32[]\n" +
                     "%2 = view %1 strides=[0] offset=[0] : " + type + "\n";
  std::string x = "%0";
  int next = 3;
  for (int i = 0; i < kSines; ++i) {
    const std::string sine = "%" + std::to_string(next++), none = "%" + std::to_string(next++),
                      sum = "%" + std::to_string(next++);
    text += sine + " = sin " + x + " : " + type + "\n";
    text += none + " = mul " + sine + " %2 : " + type + "\n";
    text += sum + " = add " + x + " " + none + " : " + type + "\n";
    x = sum;
  }
  return text + "return " + x + "\n";
}

class OwnTemplate : public ::testing::Test {
 protected:
  OwnTemplate() : dir_(*TempDir::create()) {
    Tensor x(DType::kF32, {kLongElements});
    for (int64_t i = 0; i < kLongElements; ++i) x.set(i, std::cos(static_cast<double>(i)));
    EXPECT_TRUE(write_file(graph_, sines_text()));
    EXPECT_TRUE(write_safetensors(expected_, {{"in0", &x}, {"out0", &x}}));
  }

  void expect_served(const std::string& target, const std::vector<std::string>& device,
                     const std::vector<std::string>& driver) {
    const json listed =
        run({kiln_, "explain", graph_, "--candidates", "--json", "--target", target}).json();
    ASSERT_EQ(listed["kernels"].size(), 1u) << listed;
    int own = 0, others = 0;
    for (const json& candidate : listed["kernels"][0]["candidates"]) {
      if (candidate["template"] != "test.only_the_input") {
        ++others;
        continue;
      }
      ++own;
      EXPECT_EQ(candidate["version"], 7);
    }
    EXPECT_EQ(own, 2);
    EXPECT_GE(others, 1);

    const Service service(dir_.path() / "data", device, kiln_);
    ASSERT_FALSE(service.endpoint().empty()) << service.log();
    const Finished tuned = ask(service, "compile", target, {});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service.log();
    const json kernel = tuned.json()["kernels"][0];
    EXPECT_EQ(kernel["schedule"], "test.only_the_input wrong=0") << tuned.out;
    EXPECT_EQ(kernel["rejected"], 1) << "the wrong one: " << tuned.out;

    const Finished served = ask(service, "run", target, driver);
    EXPECT_EQ(served.exit_code, 0) << served.out << served.err;
    EXPECT_EQ(served.json()["cache"], "hit") << served.out;
  }

 protected:
  // The programs' next release, on what this one stored.
  json stats(const Service& service) {
    return testing::ask({next_, "stats", "--once", "--json", "--coordinator", service.endpoint()})
        .json();
  }
  json compile(const Service& service, const std::string& kiln,
               const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        kiln,           "compile", graph_,          "--mode",
        "max-autotune", "--json",  "--coordinator", service.endpoint()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = testing::ask(arguments);
    EXPECT_EQ(done.exit_code, 0) << done.err << service.log();
    return done.json();
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

  Finished ask(const Service& service, const std::string& command, const std::string& target,
               const std::vector<std::string>& driver) {
    std::vector<std::string> arguments = {
        kiln_,    command,        graph_,   "--target",      target,
        "--mode", "max-autotune", "--json", "--coordinator", service.endpoint()};
    if (command == "run") arguments.insert(arguments.end(), {"--expect", expected_});
    arguments.insert(arguments.end(), driver.begin(), driver.end());
    return testing::ask(arguments);
  }

  const TempDir dir_;
  const std::string kiln_ = std::string(KILN_BINARY_DIR) + "/tests/own_template/kiln";
  const std::string next_ = std::string(KILN_BINARY_DIR) + "/tests/own_template_8/kiln";
  const std::string graph_ = dir_.path() / "disguised.kiln";
  const std::string expected_ = dir_.path() / "expected.safetensors";
};

TEST_F(OwnTemplate, IsListedTunedVerifiedWinningAndServedOnTheCpu) {
  expect_served("cpu", {}, {});
}

// The fleet is replaced by one whose template has another version: no request waits, the winner of
// before is served, and what is tuned in the background takes its place.
TEST_F(OwnTemplate, AnUpgradeServesTheOldWinnerUntilItsSuccessorIsThere) {
  const Path data = dir_.path() / "data";
  json won;
  {
    Service before(data, {}, kiln_);
    const json tuned = compile(before, kiln_);
    EXPECT_EQ(tuned["cache"], "tuned");
    won = tuned["kernels"];
    ASSERT_EQ(before.stop(), 0);
  }
  const Service now(data, {}, next_);
  ASSERT_FALSE(now.endpoint().empty()) << now.log();
  const json first = compile(now, next_);
  EXPECT_EQ(first["cache"], "stale");
  EXPECT_EQ(first["kernels"], won);
  std::string cache = "stale";
  while (cache == "stale") {
    pause();
    cache = compile(now, next_)["cache"];
  }
  EXPECT_EQ(cache, "hit") << "nobody waited for the tuning";
  const json last = compile(now, next_, {"--strict"});
  EXPECT_EQ(last["cache"], "hit");
  EXPECT_EQ(last["kernels"][0]["schedule"], "test.only_the_input wrong=0");
  while (stats(now)["programs_stale"] != 0) pause();
}

TEST_F(OwnTemplate, AStrictRequestWaitsForTheSuccessor) {
  const Path data = dir_.path() / "data";
  {
    Service before(data, {}, kiln_);
    compile(before, kiln_);
    ASSERT_EQ(before.stop(), 0);
  }
  const Service now(data, {}, next_);
  EXPECT_EQ(compile(now, next_, {"--strict"})["cache"], "tuned");
  EXPECT_EQ(compile(now, next_)["cache"], "hit");
}

#ifdef KILN_FAKE_LIBCUDA
TEST_F(OwnTemplate, IsListedTunedVerifiedWinningAndServedOnAGpu) {
  expect_served("cuda:sm_90a", worker_of_fake_gpu(), client_of_fake_gpu());
}
#endif

}  // namespace
}  // namespace kiln::testing
