#include "tests/support/fake_nvtx/fake_nvtx.h"

#include <utility>

namespace {

std::vector<std::string>& calls() {
  static std::vector<std::string> heard;
  return heard;
}

}  // namespace

extern "C" int nvtxRangePushA(const char* message) {
  calls().push_back(std::string("push ") + message);
  return 0;
}
extern "C" int nvtxRangePop() {
  calls().emplace_back("pop");
  return 0;
}

std::vector<std::string> kiln::take_nvtx_calls() {
  return std::exchange(calls(), {});
}
