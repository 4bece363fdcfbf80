// Nvrtc for builds without CUDA's headers: there is none.
#include "compiler_core/base/check.h"
#include "compiler_core/compile/nvrtc.h"

namespace kiln {

struct Nvrtc::Library {};

Nvrtc::Nvrtc(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

Result<Nvrtc> Nvrtc::find(const std::string&) {
  return fail(Code::kUnsupported,
              "this Kiln was built without CUDA; build it where the CUDA toolkit's headers are");
}

const std::string& Nvrtc::build() const {
  CHECK(false, "find() gives none");
}

const std::string& Nvrtc::toolkit() const {
  CHECK(false, "find() gives none");
}

Digest Nvrtc::candidate_key(const Source&, const Target&) const {
  CHECK(false, "find() gives none");
}

Result<Nvrtc::Object> Nvrtc::compile(const Source&, const Target&,
                                     const std::function<bool()>&) const {
  CHECK(false, "find() gives none");
}

}  // namespace kiln
