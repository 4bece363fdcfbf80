#include "compiler_core/runtime/nvtx.h"

#include <dlfcn.h>

namespace kiln {
namespace {

struct Functions {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
};

// The library stays open: a profiler keeps what it is told there.
Functions open() {
  for (const char* name : {"libnvtx3interop.so.1", "libnvToolsExt.so.1"}) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    const Functions found{
        reinterpret_cast<decltype(Functions::push)>(::dlsym(library, "nvtxRangePushA")),
        reinterpret_cast<decltype(Functions::pop)>(::dlsym(library, "nvtxRangePop"))};
    if (found.push != nullptr && found.pop != nullptr) return found;
  }
  return {};
}

}  // namespace

NvtxRange::NvtxRange(const std::string& name) {
  static const Functions functions = open();
  if (functions.push == nullptr) return;
  functions.push(name.c_str());
  pop_ = functions.pop;
}

NvtxRange::~NvtxRange() {
  if (pop_ != nullptr) pop_();
}

}  // namespace kiln
