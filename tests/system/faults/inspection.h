// What a service leaves on disk and among the processes, looked at from outside; and damage done
// to its files. Free functions; complaints are sentences, none when all is well.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/system/faults/live_service.h"

namespace kiln::testing {

// Temporary files below `directory` that nobody has renamed or removed yet.
std::vector<std::string> half_written(const Path& directory);

// No temporary file in the data directory and the object cache, no scratch directory but the
// workers', no process but the service's own, their runners and `guests`, no descriptors without
// end; HTTP ports, where there are, say that all is well. Ends give their files back at once, but
// the last of a process may take a moment.
std::vector<std::string> inspect_house(LiveService& service, const std::set<pid_t>& guests);
// Every blob is what its name says; but those of `rotten`, which may lie there until somebody
// reads them.
std::vector<std::string> inspect_blobs(const LiveService& service, const std::set<Path>& rotten);
// After the end: nothing runs, nothing is left in its scratch.
std::vector<std::string> inspect_end(const LiveService& service);

// Flips a bit of the `n`-th stored blob; which file that was.
Path rot(const LiveService& service, uint64_t n);
// Takes all the room on the disk of `directory`, and gives it back.
void fill_disk(const Path& directory);
void free_disk(const Path& directory);

}  // namespace kiln::testing
