// The processes below this one, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kiln::testing {

struct Descendant {
  pid_t pid = 0, parent = 0;
  std::string name;  // of its program, 15 characters
};

// From now on orphans of our children are ours too.
void adopt_orphans();
// All that live; orphans that ended are reaped.
std::vector<Descendant> living_descendants();

}  // namespace kiln::testing
