// House: a live service in a directory of its own, and rounds of trouble on it, each held to what
// docs/faults.md promises. For gtest; one thread.
#pragma once

#include <functional>

#include "tests/system/faults/drill.h"

namespace kiln::testing {

class House {
 public:
  explicit House(LiveService::Options options = {}, uint64_t seed = 5);

  void play(const Trouble& trouble);
  // Until all of its points were reached: what comes before them may have been lost to the last
  // round.
  void play_points(Trouble trouble);
  // kill -9 of everybody, then an orderly end.
  void end();

  LiveService& service() { return service_; }
  FaultControl& faults() { return faults_; }
  Drill& drill() { return drill_; }

 private:
  LiveService::Options placed(LiveService::Options options) const;
  std::string log() const;

  const TempDir dir_;
  FaultControl faults_;
  LiveService service_;
  Drill drill_;
};

// A fault at a named point, and the trouble that it is; a stop lasts a second and a half.
Fault fault_at(std::string_view point, FaultAction action, bool after, int error = 0, int skip = 0,
               int times = 1);
Trouble at(Fault fault);

// Whether `condition` comes to hold while we are patient.
bool eventually(const std::function<bool()>& condition);

}  // namespace kiln::testing
