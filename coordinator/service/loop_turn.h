// One turn of the loop of a coordinator, whether it leads (ServiceLoop) or follows (Follower): the
// jobs of other threads, a tick when it is due, pieces of blobs, then what peers say. A turn that
// finds nothing to do waits for a peer until the next tick. The loop's thread.
//
// A Loop has an inbox, a listener, blobs (a BlobSender), times and next_tick_ms, and says what it
// does in now_ms(), tick(), handle(Arrival), send(peer, message) and blob_is_missing(digest).
#pragma once

#include <algorithm>
#include <chrono>

#include "coordinator/event_loop.h"
#include "coordinator/status/service_status.h"
#include "coordinator/storage/blob_sender.h"
#include "schema/zmq/transport.h"

namespace kiln {

inline constexpr int kMessagesATurn = 64;
inline constexpr int kCongestedWaitMs = 5;  // until a slow peer may take more
inline constexpr size_t kBlobBytesATurn = 1 << 20;
inline constexpr size_t kBytesAPiece = 16 << 10;  // what even a small one costs

// True when it stopped because others want their turn, false when nobody takes more now.
template <class Loop>
bool send_blob_pieces(Loop& loop) {
  const auto can_take = [&loop](const PeerId& peer) { return !loop.listener->congested(peer); };
  size_t bytes = 0;
  bool more = true;
  while (more && bytes < kBlobBytesATurn) {
    auto piece = loop.blobs.next(loop.now_ms(), can_take);
    more = piece.has_value();
    if (!more) break;
    bytes += kBytesAPiece;
    for (const BlobChunk& chunk : piece->reply.chunks) bytes += chunk.bytes.size();
    loop.send(piece->peer, std::move(piece->reply));
  }
  for (const Digest& blob : loop.blobs.take_missing()) loop.blob_is_missing(blob);
  return more;
}

template <class Loop>
void take_turn(Loop& loop) {
  using Clock = std::chrono::steady_clock;
  const auto turn_start = Clock::now();
  for (const JobQueue::Job& job : loop.inbox.take()) job();
  if (loop.now_ms() >= loop.next_tick_ms) loop.tick();
  const bool more = send_blob_pieces(loop);
  int wait_ms = static_cast<int>(std::max<int64_t>(loop.next_tick_ms - loop.now_ms(), 0));
  if (!loop.blobs.idle()) wait_ms = more ? 0 : std::min(wait_ms, kCongestedWaitMs);
  const auto wait_start = Clock::now();
  auto wait_end = wait_start;
  for (int i = 0; i < kMessagesATurn; ++i) {
    const auto arrival = loop.listener->arrive(i == 0 ? wait_ms : 0);
    if (i == 0) wait_end = arrival ? arrival->at : Clock::now();
    if (!arrival) break;
    loop.handle(*arrival);
  }
  const auto worked = (Clock::now() - wait_end) + (wait_start - turn_start);
  loop.times.turn.observe(std::chrono::duration<double>(worked).count());
}

}  // namespace kiln
