// The log of a service goes to stderr, and whoever reads it may stop reading.
#pragma once

namespace kiln {

// From here on, what a full pipe or socket does not take at once is lost instead of waited for: a
// service goes on though nobody reads its log. Files and terminals stay as they are, and so does
// the pipe for others who write to it. Before any thread.
void never_wait_for_stderr();

}  // namespace kiln
