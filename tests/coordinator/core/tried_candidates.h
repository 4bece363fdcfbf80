// TriedCandidates: a core with one worker that works everything off and notes which candidates it
// tried, in order. Tests of what is tried when derive from it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {

class TriedCandidates : public ::testing::Test {
 protected:
  // `us_of(candidate, is_final)` is what a candidate takes; 0 or less: its result is wrong.
  template <class MicrosecondsOf>
  void try_all(const MicrosecondsOf& us_of) {
    bench_.work_off("w", [&](const Job& job) {
      std::vector<CandidateResult> results;
      const bool is_final = job.kind == Job::Kind::kFinal;
      for (const int i : indices(job)) {
        if (!is_final) tried_.push_back(i);
        const double us = us_of(i, is_final);
        results.push_back(us > 0 ? ok_result(job, i, us)
                                 : bad_result(job, i, Verdict::kWrongResult));
      }
      bench_.report("w", {}, std::move(results));
    });
    bench_.store_all();
  }
  std::string winner() const {
    return bench_.kernels.size() == 1 ? bench_.kernels.front().kernel.schedule : "";
  }

  CoreBench bench_{[] {
    CoreOptions options;
    options.batch_size = 8;
    return options;
  }()};
  std::vector<int> tried_;
};

}  // namespace kiln
