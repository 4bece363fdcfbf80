// WireWatch bounds what connections make libzmq keep. High-water marks count whole messages, so a
// peer that sends one message of endlessly many frames would grow this process unseen (an empty
// frame has two bytes on the wire and 64 in memory), and so would data queued for thousands of slow
// readers. libzmq reports neither, but the kernel counts the bytes each connection sent and took:
//
//   kept     bytes libzmq took from a connection since it last delivered something of it. Frames
//            are small (codec.h), so honest peers keep less than two; heartbeats are allowed for.
//   queued   bytes sent on a connection that its other end has not acknowledged, whether they wait
//            in libzmq or before it (backlog.h).
//
// look() names the links that keep too much or take nothing for too long, and, while all links
// together exceed a limit, those that keep or have queued the most. It looks at a few connections
// in turn, and at all of them when this process grows. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace kiln {

class ConnectionTable;
struct PeerLink;

// Byte counts of one connection.
struct Traffic {
  using Time = std::chrono::steady_clock::time_point;
  // Set by the listener.
  int64_t delivered = 0;  // bytes since the last look
  int64_t handed = 0;     // bytes sent: given to libzmq, or waiting for it
  // Set by the watch.
  int64_t base = 0, kept = 0;  // `base`: bytes taken that were delivered, or forgiven
  // Bytes that were kept at the last look and are still kept although every complete message has
  // been taken since: an incomplete message.
  int64_t held = 0;
  int64_t acked = 0, acked_base = 0, queued = 0;
  Time since{};    // when `base` was taken
  Time took_at{};  // when `acked` last moved
};

struct WireLimits {
  int64_t kept_bytes = 384 << 10;        // one connection
  int64_t kept_bytes_in_all = 16 << 20;  // all connections that deliver nothing
  // Replaces kept_bytes_in_all once the process has grown by `growth_bytes` since less than this
  // was kept: the kept bytes take many times their size in memory, so they are tiny frames.
  int64_t kept_bytes_in_growth = 2 << 20;
  int64_t growth_bytes = 64 << 20;
  int64_t waiting_bytes = 16 << 20;  // allowed more while whole messages wait for us
  int64_t idle_bytes_a_s = 64;       // heartbeats
  int64_t queued_bytes = 96 << 20;   // one connection
  int64_t queued_bytes_in_all = 512 << 20;
  std::chrono::seconds silent{20};  // connected and never heard: a handshake that does not end
  std::chrono::seconds stuck{30};   // has bytes queued and takes none
};

class WireWatch {
 public:
  using Time = Traffic::Time;
  WireWatch() = default;
  explicit WireWatch(WireLimits limits) : limits_(limits) {}

  // Whether it is time to look().
  bool due(Time now) const { return now >= next_; }
  // The links to cut. `drained`: every complete message was taken since the last look.
  std::vector<PeerLink*> look(ConnectionTable& connections, bool drained, Time now);

 private:
  bool measure(PeerLink& link, bool drained, Time now) const;
  bool offends(const PeerLink& link, Time now) const;

  WireLimits limits_;
  Time next_{};
  int64_t resident_ = 0;  // bytes of this process when every link was last looked at
  int64_t calm_ = 0;      // bytes of this process when little was last kept
  bool was_growing_ = false;
  size_t cursor_ = 0;
};

}  // namespace kiln
