#include "schema/zmq/wire_watch.h"

#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "schema/zmq/connection_table.h"

namespace kiln {
namespace {

constexpr std::chrono::milliseconds kPeriod{20};
constexpr size_t kLinksALook = 64;
constexpr int64_t kGrowth = 16 << 20;  // of this process: then every link is looked at
constexpr int64_t kOverhead = 4096;    // heartbeats and the like between two looks
constexpr int64_t kSlowReader = 64 << 10;

// 0 when the system does not say.
int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long size = 0, resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &size, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

// False when the kernel does not tell.
bool WireWatch::measure(PeerLink& link, bool drained, Time now) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  int unread = 0;
  if (getsockopt(link.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received ||
      ioctl(link.fd, FIONREAD, &unread) != 0) {
    return false;
  }
  Traffic& traffic = link.traffic;
  const int64_t taken = static_cast<int64_t>(info.tcpi_bytes_received) - unread;
  if (traffic.since == Time{}) traffic.since = now;
  traffic.held = 0;
  if (drained && traffic.delivered == 0) traffic.held = traffic.kept;
  if (!drained) traffic.held = std::max<int64_t>(0, traffic.kept - limits_.waiting_bytes);
  if (traffic.delivered > 0) {
    traffic.base = std::min(taken, traffic.base + traffic.delivered + kOverhead);
    traffic.since = now;
    traffic.delivered = 0;
  }
  traffic.kept = taken - traffic.base;
  const auto acked = static_cast<int64_t>(info.tcpi_bytes_acked);
  if (acked != traffic.acked || traffic.queued <= kSlowReader) traffic.took_at = now;
  traffic.acked = acked;
  // Frames' headers and heartbeats are acknowledged and were never counted: forgive them.
  traffic.acked_base = std::max(traffic.acked_base, acked - traffic.handed);
  traffic.queued = traffic.handed - (acked - traffic.acked_base);
  return true;
}

bool WireWatch::offends(const PeerLink& link, Time now) const {
  const Traffic& traffic = link.traffic;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - traffic.since);
  if (traffic.held > limits_.kept_bytes + limits_.idle_bytes_a_s * age.count()) return true;
  if (link.peer.empty() && age > limits_.silent) return true;
  if (traffic.queued > kSlowReader && now - traffic.took_at > limits_.stuck) return true;
  return traffic.queued > limits_.queued_bytes;
}

std::vector<PeerLink*> WireWatch::look(ConnectionTable& connections, bool drained, Time now) {
  next_ = now + kPeriod;
  std::vector<PeerLink*> links = connections.links();
  const int64_t resident = resident_bytes();
  const bool all = resident > resident_ + kGrowth || links.size() <= kLinksALook;
  if (all || resident < resident_) resident_ = resident;
  const size_t count = all ? links.size() : kLinksALook;
  std::vector<PeerLink*> cut, rest;
  int64_t held = 0, queued = 0;
  for (size_t i = 0; i < links.size(); ++i) {
    PeerLink& link = *links[i];
    if (link.dropped) continue;
    const bool turn = (i + links.size() - cursor_ % links.size()) % links.size() < count;
    if (turn && measure(link, drained, now) && offends(link, now)) {
      cut.push_back(&link);
      continue;
    }
    held += link.traffic.delivered == 0 ? link.traffic.held : 0;
    queued += link.traffic.queued;
    rest.push_back(&link);
  }
  cursor_ += count;
  const auto shed = [&](int64_t Traffic::*amount, int64_t sum, int64_t limit) {
    if (sum <= limit) return;
    std::ranges::sort(rest, [&](const PeerLink* a, const PeerLink* b) {
      return a->traffic.*amount > b->traffic.*amount;
    });
    for (size_t i = 0; i < rest.size() && sum > limit; ++i) {
      sum -= rest[i]->traffic.*amount;
      cut.push_back(rest[i]);
    }
  };
  if (held < limits_.kept_bytes_in_growth) {
    // The memory of the cut links is free by now, but malloc keeps it in fragments.
    const bool trimmed = std::exchange(was_growing_, false);
    if (trimmed) malloc_trim(0);
    calm_ = trimmed ? resident_bytes() : resident;
  }
  const bool growing = resident - calm_ > std::max(limits_.growth_bytes, 8 * held);
  was_growing_ = was_growing_ || growing;
  shed(&Traffic::held, held, growing ? limits_.kept_bytes_in_growth : limits_.kept_bytes_in_all);
  shed(&Traffic::queued, queued, limits_.queued_bytes_in_all);
  return cut;
}

}  // namespace kiln
