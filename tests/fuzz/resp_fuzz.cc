// Requests of Redis clients, in pieces of any size, on a connection that may hold little or much.
#include "compiler_core/base/check.h"
#include "coordinator/redis/resp.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  return {"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva\r\nu\r\n",
          "*2\r\n$3\r\nGET\r\n$31\r\npt2:fx-graph-v1::fabcdefghij:c1\r\n*1\r\n$4\r\nQUIT\r\n",
          "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$8\r\nredis-py\r\n"};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t piece = 1 + data[0] % 32, most = data[0] < 128 ? 64 : 4096;
  RespReader reader;
  for (size_t at = 0; at < size; at += piece) {
    reader.add(text.substr(at, piece));
    for (;;) {
      const auto request = reader.next(most);
      if (!request) return 0;
      if (!*request) break;
      size_t bytes = 0;
      for (const std::string& word : **request) bytes += word.size();
      CHECK(!(*request)->empty() && (*request)->size() <= kMaxRespWords && bytes <= most,
            "a request is within its bounds");
    }
    CHECK(reader.held() <= most + kMaxRespWords * 24 + piece, "no more is held than one request");
  }
  return 0;
}
