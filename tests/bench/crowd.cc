#include "tests/bench/crowd.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"

namespace kiln::bench {
namespace {

constexpr auto kDrainTime = std::chrono::seconds(30);

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0, "there are descriptors enough; raise the limit");
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const int done = connect_to_loopback(fd, port);
  CHECK(done == 0 || errno == EINPROGRESS, "the server's port is open");
  return fd;
}

}  // namespace

Crowd::Crowd(int port, size_t size, const MakeDialogue& make, std::chrono::seconds patience)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), peers_(size) {
  for (size_t i = 0; i < size; ++i) {
    Peer& peer = peers_[i];
    peer.fd = connect_to(port);
    peer.dialogue = make();
    peer.dialogue->open(peer.unsent);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.u64 = i;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.fd, &event);
  }
  const auto deadline = Clock::now() + patience;
  const auto all_ready = [this] {
    return std::ranges::all_of(
        peers_, [](const Peer& peer) { return peer.dialogue->ready() && peer.unsent.empty(); });
  };
  while (!all_ready()) {
    CHECK(Clock::now() < deadline, "every connection is served in time");
    serve(std::chrono::milliseconds(20), {});
  }
}

Crowd::~Crowd() {
  for (const Peer& peer : peers_) close(peer.fd);
  close(epoll_);
}

void Crowd::begin() {
  times_ms_.clear();
  began_ = Clock::now();
}

Load Crowd::finish() {
  Load load;
  load.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  load.answers = std::ssize(times_ms_);
  if (!times_ms_.empty()) {
    std::ranges::sort(times_ms_);
    load.p50_ms = times_ms_[times_ms_.size() / 2];
    load.p99_ms = times_ms_[times_ms_.size() * 99 / 100];
    load.max_ms = times_ms_.back();
  }
  drain();
  return load;
}

void Crowd::drain() {
  const auto deadline = Clock::now() + kDrainTime;
  while (open_ > 0) {
    CHECK(Clock::now() < deadline, "every question is answered");
    serve(std::chrono::milliseconds(20), {});
  }
}

Load Crowd::saturate(int window, std::chrono::milliseconds duration) {
  begin();
  const auto end = began_ + duration;
  for (Peer& peer : peers_) {
    for (int i = 0; i < window; ++i) ask(peer, Clock::now());
    flush(peer);
  }
  const auto again = [this](Peer& peer) { ask(peer, Clock::now()); };
  while (Clock::now() < end) serve(std::chrono::milliseconds(20), again);
  return finish();
}

Load Crowd::offer(double per_s, std::chrono::milliseconds duration) {
  begin();
  const auto end = began_ + duration;
  const auto interval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / per_s));
  auto due = began_;
  for (auto now = began_; now < end; now = Clock::now()) {
    for (; due <= now; due += interval) {
      Peer& peer = peers_[next_ % peers_.size()];
      ask(peer, due);
      flush(peer);
    }
    serve(std::chrono::duration_cast<std::chrono::microseconds>(due - now), {});
  }
  return finish();
}

Load Crowd::once() {
  begin();
  for (Peer& peer : peers_) {
    ask(peer, Clock::now());
    flush(peer);
  }
  drain();
  return finish();
}

void Crowd::ask(Peer& peer, Clock::time_point due) {
  peer.dialogue->ask(next_++, peer.unsent);
  peer.asked.push_back(due);
  ++open_;
}

void Crowd::serve(std::chrono::microseconds wait, const std::function<void(Peer&)>& again) {
  std::array<epoll_event, 512> events;
  pollfd readable{epoll_, POLLIN, 0};
  const timespec time{wait.count() / 1'000'000, wait.count() % 1'000'000 * 1000};
  if (wait.count() > 0) ppoll(&readable, 1, &time, nullptr);
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    Peer& peer = peers_[events[i].data.u64];
    if ((events[i].events & EPOLLIN) != 0) hear(peer, again);
    flush(peer);
  }
}

void Crowd::hear(Peer& peer, const std::function<void(Peer&)>& again) {
  thread_local std::array<char, 64 << 10> buffer;
  for (;;) {
    const ssize_t got = recv(peer.fd, buffer.data(), buffer.size(), 0);
    CHECK(got != 0, "the server keeps the connection");
    if (got < 0) return;
    const bool sense = peer.dialogue->hear({buffer.data(), static_cast<size_t>(got)}, peer.unsent);
    CHECK(sense, "the server's answers make sense");
    const auto now = Clock::now();
    for (; peer.heard < peer.dialogue->answers(); ++peer.heard) {
      CHECK(!peer.asked.empty(), "an answer has a question");
      times_ms_.push_back(
          std::chrono::duration<float, std::milli>(now - peer.asked.front()).count());
      peer.asked.pop_front();
      --open_;
      if (again) again(peer);
    }
    if (got < static_cast<ssize_t>(buffer.size())) return;
  }
}

void Crowd::flush(Peer& peer) {
  if (peer.unsent.empty()) return;
  const ssize_t sent = send(peer.fd, peer.unsent.data(), peer.unsent.size(), MSG_NOSIGNAL);
  if (sent > 0) peer.unsent.erase(0, static_cast<size_t>(sent));
}

}  // namespace kiln::bench
