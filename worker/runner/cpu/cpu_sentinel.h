// The CPU's sentinel: a fixed kernel whose time says how fast this core's clock runs now.
#pragma once

namespace kiln::runner {

// Microseconds of a chain of dependent multiply-adds on the calling thread, the least of nine runs:
// what else runs on the machine lengthens some runs, a lower clock all of them. About 2 ms.
double cpu_sentinel_us();

}  // namespace kiln::runner
