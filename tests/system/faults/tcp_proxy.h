// TcpProxy: a wire between clients or workers and a coordinator that can be cut: connections are
// dropped, delayed, cut into single bytes, or deaf in one direction, until they are healed. What a
// deaf wire was given waits, as in a partition that ends. A thread of its own; the functions may be
// called from any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
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

  // Hears on the proxy's thread what came over a connection (they count from 1), `up` to the server or
  // down from it, before any of it goes on. False: it does not, and the connection is reset.
  using Tap = std::function<bool(int connection, bool up, std::string_view bytes)>;

  explicit TcpProxy(int server_port, Tap tap = {});
  ~TcpProxy();
  int port() const { return port_; }
  void set(Mode mode);
  void drop();  // resets every connection there is
  // Nobody listens at its port, as when the server's machine is up and the server is not; or again.
  void set_absent(bool absent);

 private:
  struct Piece {
    int64_t due_ms = 0;
    std::string bytes;
  };
  // One direction of a connection.
  struct Flow {
    int connection = 0;
    bool is_up = false;
    int from = -1, to = -1;
    std::deque<Piece> pieces;
    size_t waiting = 0;  // bytes in `pieces`
    bool ended = false;  // nothing more comes from `from`
    bool cut = false;    // by the tap
  };
  struct Pair {
    Flow up, down;
    bool over = false;
  };
  void run();
  void listen();
  void accept_one();
  void fill(Flow& flow, Mode mode);
  bool drain(Flow& flow, Mode mode);  // false: the other end is gone
  static void reset(Pair& pair);

  const int server_port_;
  const Tap tap_;  // may be empty
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::atomic<Mode> mode_{Mode::kForward};
  std::atomic<bool> drop_{false}, stop_{false}, absent_{false};
  std::list<Pair> pairs_;  // the thread's
  int connections_ = 0;    // the thread's; so far
  std::thread thread_;
};

}  // namespace kiln::testing
