// TcpProxy: a wire between clients or workers and a coordinator that can be cut: connections are
// dropped, delayed, cut into single bytes, or deaf in one direction, until they are healed. What a
// deaf wire was given waits, as in a partition that ends. A thread of its own; the functions may be
// called from any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <thread>

namespace kiln::testing {

class TcpProxy {
 public:
  enum class Mode : uint8_t {
    kForward,
    kRefuse,        // every connection is reset, new ones too
    kBytes,         // one byte a segment
    kHalves,        // half of what came, the rest later
    kDelay,         // by some 50 ms
    kDeafToClient,  // nothing comes back
    kDeafToServer,  // nothing gets through
  };
  static constexpr int kModes = 7;
  static std::string_view name(Mode mode);

  explicit TcpProxy(int server_port);
  ~TcpProxy();
  int port() const { return port_; }
  void set(Mode mode);
  void drop();  // resets every connection there is

 private:
  struct Piece {
    int64_t due_ms = 0;
    std::string bytes;
  };
  // One direction of a connection.
  struct Flow {
    int from = -1, to = -1;
    std::deque<Piece> pieces;
    size_t waiting = 0;  // bytes in `pieces`
    bool ended = false;  // nothing more comes from `from`
  };
  struct Pair {
    Flow up, down;
    bool over = false;
  };
  void run();
  void accept_one();
  void fill(Flow& flow, Mode mode);
  bool drain(Flow& flow, Mode mode);  // false: the other end is gone
  static void reset(Pair& pair);

  const int server_port_;
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::atomic<Mode> mode_{Mode::kForward};
  std::atomic<bool> drop_{false}, stop_{false};
  std::list<Pair> pairs_;  // the thread's
  std::thread thread_;
};

}  // namespace kiln::testing
