// The programs of tests/graphs/zoo against torch's outputs: through a service on the CPU, and those of
// ops on the fake GPU, compiled where they run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

using Zoo = OneService<>;

Finished run_program(Path program, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {binary("kiln"), "run", program.string(), "--expect"};
  arguments.push_back(program.replace_extension(".safetensors").string());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return ask(arguments);
}

TEST_F(Zoo, EveryModelIsRight) {
  int models = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(KILN_SOURCE_DIR "/tests/graphs/zoo")) {
    if (file.path().extension() != ".pt2") continue;
    SCOPED_TRACE(file.path().string());
    const Finished ran = run_program(
        file.path(), {"--coordinator", service_->endpoint(), "--no-fallback", "--json"});
    ++models;
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err << service_->log();
    if (ran.exit_code != 0) continue;
    EXPECT_TRUE(ran.json().at("compared").get<bool>()) << ran.out;
  }
  EXPECT_GT(models, 12);
}

#ifdef KILN_FAKE_LIBCUDA
TEST(ZooOnAGpu, EveryProgramOfOpsIsRight) {
  int programs = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(KILN_SOURCE_DIR "/tests/graphs/zoo")) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() != ".pt2" ||
        (!name.starts_with("ops_") && !name.starts_with("torchao__")))
      continue;
    SCOPED_TRACE(file.path().string());
    ++programs;
    const Finished ran =
        run_program(file.path(), {"--target", "cuda", "--libcuda", KILN_FAKE_LIBCUDA, "--libnvrtc",
                                  KILN_FAKE_LIBNVRTC, "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    if (ran.exit_code != 0) continue;
    EXPECT_TRUE(ran.json().at("compared").get<bool>()) << ran.out;
  }
  EXPECT_GT(programs, 8);
}
#endif

}  // namespace
}  // namespace kiln::testing
