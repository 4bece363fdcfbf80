// Nvrtc: CUDA C++ to a cubin in this process, through NVRTC, which is opened at run time. Needs no
// GPU and no CUDA headers. Immutable; thread-safe, but NVRTC does not scale over threads: the
// worker runs several processes, each with one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

// ptxas's report on a cubin: the greatest of each figure over its entries.
struct KernelResources {
  int registers = 0;
  int spill_bytes = 0;   // stores and loads of spilled registers
  int stack_bytes = 0;   // local memory: spilled registers, and arrays that are not in any
  int shared_bytes = 0;  // static
  bool operator==(const KernelResources&) const = default;
};

class Nvrtc {
 public:
  // `library`: a file or soname; empty: $CUDA_HOME is main's to pass here as a path; else the usual
  // names and install places, newest first. kNotFound names where it looked.
  static Result<Nvrtc> find(const std::string& library = {});

  const std::string& build() const;    // "nvrtc 13.0.88": part of the candidate key
  const std::string& toolkit() const;  // "cuda-13": Target::toolkit
  // The GPUs that it makes code for, with its toolkit: "sm_80", and from 90 on also "sm_90a".
  std::vector<Target> targets() const;

  Digest candidate_key(const Source& source, const Target& target) const;

  struct Object {
    Artifact artifact;
    KernelResources resources;
  };
  // The same source, target and build give the same bytes. kInvalidArgument with NVRTC's log when
  // the source is refused; kDeadlineExceeded when `give_up` said so (NVRTC asks now and then, on
  // this thread); kUnsupported for a target that is not an SM this NVRTC knows; kUnavailable when
  // it lacks memory or fails for reasons of its own.
  Result<Object> compile(const Source& source, const Target& target,
                         const std::function<bool()>& give_up = {}) const;

 private:
  struct Library;
  explicit Nvrtc(std::shared_ptr<const Library> library);
  std::shared_ptr<const Library> library_;
};

// The flags of every compile; no paths. (An NVRTC with a cache on disk also gets one not to use
// it.)
std::vector<std::string> nvrtc_flags(const Target& target);

// Reads ptxas's report out of NVRTC's log. Pure.
KernelResources parse_resources(std::string_view log);

}  // namespace kiln
