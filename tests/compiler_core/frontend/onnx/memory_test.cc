// What a hostile model may cost: eight times its size and 256 MiB, held by the kernel's own limit.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "compiler_core/frontend/onnx/onnx_program.h"
#include "tests/support/onnx_writer.h"

namespace kiln {
namespace {

using namespace kiln::testing;

// The sanitizers reserve terabytes of addresses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsHold = false;
#else
constexpr bool kLimitsHold = true;
#endif

uint64_t address_space() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Reads the model in a child that may not take more; says how that ended.
std::string within_limit(const std::string& model) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (kLimitsHold) {
      const rlim_t most = address_space() + 8 * model.size() + (uint64_t{256} << 20);
      const rlimit limit = {most, most};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    ::_exit(read_onnx_bytes(model, std::nullopt) ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "refused" : "read";
}

std::string repeated(std::string piece, size_t bytes) {
  while (piece.size() < bytes) piece += piece;
  return piece;
}
std::string model_with(const std::string& graph) {
  return number_field(1, 8) + bytes_field(7, graph) +
         bytes_field(8, bytes_field(1, "") + number_field(2, 18));
}

constexpr size_t kSize = size_t{4} << 20;  // at least

TEST(OnnxMemory, EmptyMessagesAreNoObjects) {
  for (const int field : {1, 5, 11, 12, 13, 15})  // nodes, initializers, inputs, outputs, ...
    EXPECT_EQ(within_limit(model_with(repeated(bytes_field(field, ""), kSize))), "refused")
        << field;
  EXPECT_EQ(within_limit(repeated(bytes_field(8, ""), kSize)), "refused");
}

TEST(OnnxMemory, ListsOfANodeAreBounded) {
  const auto node = [](int field, const std::string& piece) {
    return model_with(bytes_field(1, repeated(bytes_field(field, piece), kSize)));
  };
  for (const int field : {1, 2, 5}) EXPECT_EQ(within_limit(node(field, "")), "refused") << field;
  // A packed list of a million integers, again and again.
  const std::string attribute = bytes_field(1, "a") + bytes_field(8, std::string(kSize / 16, '\1'));
  EXPECT_EQ(within_limit(node(5, attribute)), "refused");
}

TEST(OnnxMemory, ManySmallNodesAreRefusedInTime) {
  std::string graph = bytes_field(11, onnx_value("x", kOnnxFloat, {"4", "4"}));
  std::string last = "x";
  for (int i = 0; i < 30'000; ++i) {
    const std::string next = "v" + std::to_string(i);
    graph += bytes_field(1, onnx_node(i % 2 == 0 ? "Exp" : "Neg", {last}, {next}));
    last = next;
  }
  graph += bytes_field(1, onnx_node("Relu", {"gone"}, {"y"}));
  EXPECT_EQ(within_limit(model_with(graph)), "refused");
}

}  // namespace
}  // namespace kiln
