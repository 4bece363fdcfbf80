// WireWatch: bounds what connections make libzmq keep. Its high-water marks count whole messages,
// so a peer that sends one message of endlessly many frames grows our memory without being seen
// (each empty frame, of two bytes, takes 64); and what is queued for thousands of slow readers adds
// up. The kernel knows what libzmq does not tell: how many bytes each connection sent and took.
//
//   kept     bytes libzmq took from a connection since it last delivered something of it. Frames
//   are
//            small (parts.h), so that honest peers keep less than two; heartbeats are allowed for.
//   queued   bytes sent on a connection that its other end has not acknowledged, whether they wait
//            in libzmq or before it (backlog.h).
//
// Who keeps too much, or takes nothing for too long, is named, to be cut; so is who keeps, or has
// queued, the most while all together are too many. Connections are looked at in turn, a few at a
// time, and all at once when this process grows. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace kiln {

class ConnectionTable;
struct PeerLink;

// Of one connection.
struct Traffic {
  using Time = std::chrono::steady_clock::time_point;
  // The listener's to set.
  int64_t delivered = 0;  // bytes since the last look
  int64_t handed = 0;     // bytes sent: given to libzmq, or waiting for it
  // The watch's own.
  int64_t base = 0, kept = 0;  // `base`: those taken that were delivered, or forgiven
  // Of what was kept at the last look, what all that was whole being taken since has not moved: no
  // message that merely waits for us.
  int64_t held = 0;
  int64_t acked = 0, acked_base = 0, queued = 0;
  Time since{};    // when `base` was taken
  Time took_at{};  // when `acked` last moved
};

struct WireLimits {
  int64_t kept_bytes = 384 << 10;        // of one connection
  int64_t kept_bytes_in_all = 16 << 20;  // of those that deliver nothing
  // Instead, once the process has grown by `growth_bytes` since they kept less than this: what is
  // kept takes many times its size, so it is a crowd of tiny frames.
  int64_t kept_bytes_in_growth = 2 << 20;
  int64_t growth_bytes = 64 << 20;
  int64_t waiting_bytes = 16 << 20;  // more, while whole messages wait for us to take them
  int64_t idle_bytes_a_s = 64;       // heartbeats
  int64_t queued_bytes = 96 << 20;   // of one connection
  int64_t queued_bytes_in_all = 512 << 20;
  std::chrono::seconds silent{20};  // connected and never heard: a handshake that does not end
  std::chrono::seconds stuck{30};   // takes nothing of what is queued
};

class WireWatch {
 public:
  using Time = Traffic::Time;
  WireWatch() = default;
  explicit WireWatch(WireLimits limits) : limits_(limits) {}

  // Whether it is time to look().
  bool due(Time now) const { return now >= next_; }
  // `drained`: since the last look everything that was whole was taken. The links to cut.
  std::vector<PeerLink*> look(ConnectionTable& connections, bool drained, Time now);

 private:
  bool measure(PeerLink& link, bool drained, Time now) const;
  bool offends(const PeerLink& link, Time now) const;

  WireLimits limits_;
  Time next_{};
  int64_t resident_ = 0;  // bytes of this process at the last look at all
  int64_t calm_ = 0;      // the same, when little was kept last
  bool was_growing_ = false;
  size_t cursor_ = 0;
};

}  // namespace kiln
