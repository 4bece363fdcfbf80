// PacketFilter: packets that are lost on the loopback of a network namespace of the test's own, both
// ways or one way, as where a network is cut: nothing is refused or reset, and nothing acknowledged.
// (A TcpProxy acknowledges what it then keeps.) One thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln::testing {

class PacketFilter {
 public:
  enum class Cut : uint8_t {
    kNone,
    kBoth,
    kToServer,    // what is sent to the server's port
    kFromServer,  // what the server answers
  };
  static constexpr int kCuts = 4;
  static std::string_view name(Cut cut);

  // Gives the calling thread, and the threads and processes that it starts from now on, a network of
  // their own with a loopback. kUnsupported, with a sentence, where it may not: that takes root.
  static Status enter_own_network();

  // REQUIRES: enter_own_network().
  static void cut(int server_port, Cut cut);  // also
  static void mend();                         // all of them
};

}  // namespace kiln::testing
