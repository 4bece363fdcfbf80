// What a service and its clients are told where the machine's GPU is the fake one.
#pragma once

#ifdef KILN_FAKE_LIBCUDA

#include <string>
#include <vector>

namespace kiln::testing {

inline std::vector<std::string> worker_of_fake_gpu() {
  return {"--device", "cuda:0", "--libcuda", KILN_FAKE_LIBCUDA, "--libnvrtc", KILN_FAKE_LIBNVRTC};
}
inline std::vector<std::string> client_of_fake_gpu() {
  return {"--libcuda", KILN_FAKE_LIBCUDA};
}

}  // namespace kiln::testing

#endif
