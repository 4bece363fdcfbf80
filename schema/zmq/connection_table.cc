#include "schema/zmq/connection_table.h"

#include <sys/socket.h>

#include <optional>
#include <utility>

namespace kiln {
namespace {

// 0 when it is no socket.
uint64_t cookie_of(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// The ROUTER's count in an id that it generated: a zero and four bytes, the highest first. Nothing for
// an id that the peer chose.
std::optional<uint32_t> number_in(const PeerId& peer) {
  if (peer.size() != 5 || peer.front() != '\0') return std::nullopt;
  uint32_t number = 0;
  for (const char byte : peer.substr(1)) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

}  // namespace

void ConnectionTable::accepted(int fd) {
  const uint64_t cookie = cookie_of(fd);
  if (const auto found = links_.find(fd); found != links_.end()) {
    if (cookie != 0 && found->second.cookie == cookie) return;  // known: it was heard first
    ended(fd);
  }
  PeerLink link;
  link.fd = fd;
  link.cookie = cookie;
  links_[fd] = std::move(link);
  unheard_.emplace_back(fd, cookie);
  (void)first_unheard();  // forgets those in front that were heard or are gone
}

PeerLink* ConnectionTable::first_unheard() {
  for (; !unheard_.empty(); unheard_.pop_front()) {
    const auto [fd, cookie] = unheard_.front();
    const auto found = links_.find(fd);
    if (found == links_.end() || found->second.cookie != cookie) continue;
    if (found->second.peer.empty() && !found->second.dropped) return &found->second;
  }
  return nullptr;
}

void ConnectionTable::ended(int fd) {
  const auto found = links_.find(fd);
  if (found == links_.end()) return;
  if (!found->second.peer.empty()) unbind(found->second);
  if (found->second.dropped) --cut_;
  links_.erase(found);
}

void ConnectionTable::unbind(PeerLink& link) {
  by_peer_.erase(link.peer);
  gone_.push_back(link.peer);
  if (!link.dropped) count_out(link);
  if (last_ == &link) last_ = nullptr;
}

PeerLink* ConnectionTable::find(const PeerId& peer) {
  if (last_ != nullptr && last_->peer == peer) return last_;
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? nullptr : last_ = found->second;
}

PeerLink* ConnectionTable::bind(int fd, const PeerId& peer, std::string key, User user) {
  if (const auto number = number_in(peer)) {
    const auto [newest, first] = newest_.try_emplace(fd, *number);
    const bool later = static_cast<int32_t>(*number - newest->second) > 0;  // also past the wrap
    if (!first && !later) return nullptr;
    newest->second = *number;
  }
  accepted(fd);  // the I/O thread that heard it may be ahead of the one that tells of it
  PeerLink& link = links_.find(fd)->second;
  if (link.cookie == 0) {
    ended(fd);
    return nullptr;
  }
  if (!link.peer.empty()) unbind(link);
  link.peer = peer;
  link.key = std::move(key);
  link.user = std::move(user);
  by_peer_[peer] = &link;
  if (!link.dropped && !link.user.name.empty()) ++open_of_[link.user.name];
  return &link;
}

size_t ConnectionTable::open_of(const User& user) const {
  const auto found = open_of_.find(user.name);
  return found == open_of_.end() ? 0 : found->second;
}

void ConnectionTable::count_out(const PeerLink& link) {
  const auto found = open_of_.find(link.user.name);
  if (found != open_of_.end() && --found->second == 0) open_of_.erase(found);
}

void ConnectionTable::cut(PeerLink& link) {
  if (!link.dropped) {
    ++cut_;
    count_out(link);
  }
  link.dropped = true;
  if (link.cookie == 0 || cookie_of(link.fd) != link.cookie) return;
  // A reset, not a polite end, once libzmq closes it: nothing more is sent, taken or waited for.
  const linger abrupt{1, 0};
  setsockopt(link.fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt);
  shutdown(link.fd, SHUT_RDWR);
}

std::vector<PeerLink*> ConnectionTable::links() {
  std::vector<PeerLink*> links;
  links.reserve(links_.size());
  for (auto& [fd, link] : links_) links.push_back(&link);
  return links;
}

size_t ConnectionTable::begun_bytes() const {
  size_t bytes = 0;
  for (const auto& [fd, link] : links_) bytes += link.parts.bytes();
  return bytes;
}

PeerLink* ConnectionTable::largest_begun() {
  PeerLink* largest = nullptr;
  for (auto& [fd, link] : links_) {
    if (link.parts.bytes() > (largest == nullptr ? 0 : largest->parts.bytes())) largest = &link;
  }
  return largest;
}

std::vector<PeerId> ConnectionTable::take_gone() {
  return std::exchange(gone_, {});
}

}  // namespace kiln
