// kill -9 of a process that fills a cache, again and again over one directory. The child prints
// every key whose put was answered as stored; after the kill each of them must be there, and
// nothing that is served may be half-written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

constexpr int kRounds = 25;

// Never returns: puts from `first` on until it is killed.
[[noreturn]] void write_until_killed(const Path& directory, int first, int acks) {
  auto opened = KernelCache::open(directory);
  if (!opened) ::_exit(3);
  const std::unique_ptr<KernelCache> cache = *std::move(opened);
  const auto acknowledge = [acks](char kind, int n) {
    return [acks, kind, n](Status status) {
      if (!status) ::_exit(4);
      const std::string line = fmt::format("{} {}\n", kind, n);
      if (::write(acks, line.data(), line.size()) < 0) ::_exit(5);
    };
  };
  for (int n = first;; ++n) {
    cache->put_blob(blob(n), acknowledge('b', n));
    cache->put_kernel(kernel(n), acknowledge('k', n));
    cache->put_program(program(n), acknowledge('p', n));
    cache->put_record(record(n), acknowledge('r', n));
    if (n % 16 == 0) cache->flush();  // small batches and large ones
  }
}

struct Acknowledged {
  std::map<char, std::set<int>> by_kind = {{'b', {}}, {'k', {}}, {'p', {}}, {'r', {}}};
  int last = 0;
  void add(const Acknowledged& more) {
    for (const auto& [kind, numbers] : more.by_kind)
      by_kind[kind].insert(numbers.begin(), numbers.end());
    last = std::max(last, more.last);
  }
};

// Runs the writer, kills it somewhere after `lines` answers, and collects what it was told.
void run_and_kill(const Path& directory, int first, int lines, int delay_us, Acknowledged& acks) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(pipe[0]);
    write_until_killed(directory, first, pipe[1]);
  }
  ::close(pipe[1]);
  std::string text;
  char chunk[4096];
  for (bool killed = false;;) {
    const ssize_t n = ::read(pipe[0], chunk, sizeof chunk);
    if (n <= 0) break;
    text.append(chunk, static_cast<size_t>(n));
    if (killed || std::count(text.begin(), text.end(), '\n') < lines) continue;
    ::usleep(static_cast<useconds_t>(delay_us));
    ::kill(child, SIGKILL);
    killed = true;  // and read on: what it printed before it died counts
  }
  ::close(pipe[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
  std::istringstream stream(text);
  for (char kind = 0; stream >> kind;) {
    int n = 0;
    stream >> n;
    acks.by_kind[kind].insert(n);
    acks.last = std::max(acks.last, n);
  }
}

void expect_acknowledged(KernelCache& cache, const Acknowledged& acks) {
  for (int n : acks.by_kind.at('b'))
    EXPECT_EQ(cache.blob(Digest::of(blob(n))).value_or("lost"), blob(n)) << n;
  for (int n : acks.by_kind.at('k')) EXPECT_TRUE(cache.kernel(key("kernel", n))) << n;
  for (int n : acks.by_kind.at('p')) EXPECT_TRUE(cache.program(key("program", n))) << n;
  std::set<int64_t> recorded;
  const std::vector<TuningRecord> records = cache.records(key("kernel", 0)).value();
  for (const TuningRecord& found : records) recorded.insert(found.schedule.get("vector", -1));
  for (int n : acks.by_kind.at('r')) EXPECT_EQ(recorded.count(n), 1u) << n;
}

// Beyond what was acknowledged there may be more, and it must be whole.
void expect_nothing_half_written(KernelCache& cache, int first, int last) {
  for (int n = first; n < last; ++n) {
    EXPECT_EQ(cache.blob(Digest::of(blob(n))).value_or(blob(n)), blob(n));
    if (const auto stored = cache.kernel(key("kernel", n))) {
      EXPECT_EQ(stored->kernel, kernel(n).kernel);
      EXPECT_EQ(cache.blob(stored->kernel.blob).value_or("lost"), blob(n));
    }
    if (const auto manifest = cache.program(key("program", n))) {
      EXPECT_EQ(program_from_json(*manifest).value(), program(n));
      EXPECT_EQ(cache.blob(Digest::of(blob(n))).value_or("lost"), blob(n));
    }
  }
  EXPECT_EQ(cache.totals().corrupt_blobs, 0);
}

TEST(Crash, WhatWasAnsweredAsStoredSurvivesKillNine) {
  const TempDir dir = TempDir::create("kiln-crash").value();
  std::mt19937 random(20240607);
  Acknowledged all;
  for (int round = 0; round < kRounds; ++round) {
    const int first = all.last + 1;
    Acknowledged acks;
    run_and_kill(dir.path(), first, 4 + static_cast<int>(random() % 150),
                 static_cast<int>(random() % 3000), acks);
    if (HasFatalFailure()) return;
    all.add(acks);
    auto cache = KernelCache::open(dir.path());
    ASSERT_TRUE(cache) << cache.error().message;
    EXPECT_EQ((*cache)->warning(), "");
    expect_acknowledged(**cache, round + 1 < kRounds ? acks : all);
    expect_nothing_half_written(**cache, first, acks.last + 100);
    if (HasFailure()) return;
  }
  EXPECT_GT(all.by_kind['p'].size(), size_t{kRounds});
}

}  // namespace
}  // namespace kiln
