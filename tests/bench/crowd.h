// Crowd: many connections to one server, served by one thread that waits on epoll. Owner's thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/dialogue.h"

namespace kiln::bench {

struct Load {
  double seconds = 0;
  int64_t answers = 0;
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
  double per_s() const { return static_cast<double>(answers) / seconds; }
};

class Crowd {
 public:
  using Clock = std::chrono::steady_clock;
  using MakeDialogue = std::function<std::unique_ptr<Dialogue>()>;

  // Connects `size` peers to 127.0.0.1:`port` at once and waits until each may be asked; a CHECK
  // fails when that takes longer than `patience`.
  Crowd(int port, size_t size, const MakeDialogue& make,
        std::chrono::seconds patience = std::chrono::seconds(60));
  ~Crowd();

  // Every connection keeps `window` questions open for `duration`: as much as the server can do.
  Load saturate(int window, std::chrono::milliseconds duration);
  // `per_s` questions a second, in turn over the connections, whatever the server does; times count
  // from when a question was due.
  Load offer(double per_s, std::chrono::milliseconds duration);
  // One question on each connection; until every one is answered.
  Load once();

 private:
  struct Peer {
    int fd = -1;
    std::unique_ptr<Dialogue> dialogue;
    std::deque<Clock::time_point> asked;  // not answered yet
    int64_t heard = 0;
    std::string unsent;
  };
  void ask(Peer& peer, Clock::time_point due);
  // Waits a little for answers; `again` is called for each.
  void serve(std::chrono::microseconds wait, const std::function<void(Peer&)>& again);
  void hear(Peer& peer, const std::function<void(Peer&)>& again);
  void flush(Peer& peer);
  void begin();
  Load finish();
  void drain();

  int epoll_ = -1;
  std::vector<Peer> peers_;
  size_t next_ = 0;  // question
  Clock::time_point began_;
  std::vector<float> times_ms_;
  int64_t open_ = 0;
};

}  // namespace kiln::bench
