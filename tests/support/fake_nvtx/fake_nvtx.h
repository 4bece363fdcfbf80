// The ranges that a program has told NVIDIA's profilers, as the stand-in for libnvtx3interop heard them:
// "push NAME" and "pop". A test links fake_nvtx, which has the real library's name, so that the code
// under test opens it. One thread at a time.
#pragma once

#include <string>
#include <vector>

namespace kiln {

// Since the call before.
std::vector<std::string> take_nvtx_calls();

}  // namespace kiln
