// NvtxRange: names a span of this thread's time to a profiler that watches the process, such as Nsight
// Systems, which shows it above the launches made inside. The library that tells a profiler,
// libnvtx3interop of the CUDA toolkit (or the older libnvToolsExt), is opened at run time; where there
// is none, nobody is told. A range per thread ends before the one that it lies in.
#pragma once

#include <string>

namespace kiln {

class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  int (*pop_)() = nullptr;  // null: there is no library
};

}  // namespace kiln
