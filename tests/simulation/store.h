// Store: what survives the coordinator in a simulation. A write is durable when it is applied here;
// the cluster decides when, in order, and which fail.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln::simulation {

// Whether it was taken with the template as it is now.
inline bool is_current(const TuningRecord& record, const TemplateVersions& templates) {
  return record.template_version == find_version(templates, record.schedule.template_name);
}

struct Store {
  uint64_t generation = 0;                 // how many coordinators there were
  int64_t serial = 0;                      // of the last program planned, or withdrawal
  std::map<Digest, std::string> programs;  // manifests
  std::map<Digest, StoreKernel> kernels;
  std::map<Digest, std::vector<TuningRecord>> records;  // by kernel key, oldest first
  struct Task {
    DetachedTask task;
    std::string graph_text;
    std::optional<Error> failure{};
  };
  std::map<Digest, Task> tasks;  // detached, by program key

  // Of a pool: the term's row, the timeline of the database, which objects there are, and by which
  // names the index knows binaries.
  uint64_t epoch = 0, timeline = 1;
  std::map<Digest, std::string> blobs;
  std::set<std::string> objects;
  int64_t names = 0;  // ever issued
};

}  // namespace kiln::simulation
