// What a pool of coordinators has instead of one process on one disk: a row that says whose term it
// is, by which every write is fenced, names of objects, and an object store that is away at times. A
// coordinator that stands still (SIGSTOP, a cut wire) loses its term, and writes what it had begun to
// write when it goes on. Of the database's fail-overs those are simulated that lose the term's row.
#include <fmt/core.h>

#include <algorithm>

#include "tests/simulation/cluster.h"

namespace kiln::simulation {
namespace {

constexpr int kTimelineBits = 20;
constexpr double kAway = 0.05;  // the object store, at any one read

}  // namespace

// As cache/postgres/term.cc: greater than the last one, and than all of earlier timelines.
void Cluster::take_term() {
  uint64_t epoch = store_.epoch + 1;
  if (mutation_ != WorldMutation::kReuseEpochs)
    epoch = std::max(epoch, store_.timeline << kTimelineBits);
  store_.epoch = epoch;
  options_.first_lease = epoch << 32;
  note(fmt::format("term {:x} begins", epoch));
}

// Its successor leads after a moment; in flight are its messages, and late its writes.
void Cluster::stand_still() {
  note("coordinator stands still");
  stood_still_[incarnation_] = store_.epoch;
  core_.reset();
  ++incarnation_;
  after(terms_.between(1, 200), [this] { start_coordinator(); });
}

void Cluster::fail_over() {
  note("the database fails over, and has lost the last term");
  ++store_.timeline;
  const uint64_t lost = store_.epoch;
  stand_still();
  store_.epoch = lost - 1;
}

// The fence: a transaction finds its own term in the row, or changes nothing.
void Cluster::write_late(const std::function<void(Status)>& apply, int64_t writer) {
  const auto stood = stood_still_.find(writer);
  if (stood == stood_still_.end()) return;  // it died
  after(terms_.between(0, 3'000), [this, apply, epoch = stood->second] {
    if (epoch != store_.epoch && mutation_ != WorldMutation::kUnfenced) return;
    checker_.saw_write(epoch, store_.epoch);
    is_late_ = true;
    apply({});
    is_late_ = false;
  });
}

// A name is claimed, and the bytes are put under it.
void Cluster::put_object(const Digest& blob) {
  const auto known = store_.blobs.find(blob);
  const std::string object = known != store_.blobs.end() ? known->second
                             : mutation_ == WorldMutation::kReuseNames
                                 ? blob.hex()
                                 : fmt::format("{}.{}", blob.hex(), ++store_.names);
  store_.blobs[blob] = object;
  store_.objects.insert(object);
}

// The index forgets the names first. The removals go out, and arrive whenever they do.
void Cluster::remove_objects(const std::vector<Digest>& blobs) {
  for (const Digest& blob : blobs) {
    const bool is_needed = std::ranges::any_of(
        store_.kernels, [&](const auto& kernel) { return kernel.second.kernel.blob == blob; });
    const auto known = store_.blobs.find(blob);
    if (is_needed || known == store_.blobs.end()) continue;
    after(terms_.between(0, 4'000), [this, object = known->second] {
      store_.objects.erase(object);
      checker_.saw_objects(store_);
    });
    store_.blobs.erase(known);
  }
}

// For whoever was answered with the program. What is away is asked for again later; only what the
// object store itself says is gone costs the program.
void Cluster::read_binaries(const Program& program) {
  for (const ProgramKernel& kernel : program.kernels) {
    const auto known = store_.blobs.find(kernel.blob);
    const bool is_there = known != store_.blobs.end() && store_.objects.contains(known->second);
    const bool is_away = faults() && terms_.chance(kAway);
    if (is_away ? mutation_ != WorldMutation::kAwayIsLost : is_there) continue;
    store_.programs.erase(program.key);
    return checker_.saw_program_forgotten(is_there);
  }
}

}  // namespace kiln::simulation
