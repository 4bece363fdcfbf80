// A "cubin" for the fake device: the host compiler's shared object of a generated CUDA source, and
// its loading. Free functions are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"
#include "tests/support/fake_cuda/device_thread.h"

namespace kiln::testing {

struct HostCubin {
  std::string bytes;
  std::vector<std::string> entries;
};

struct HostCubinOptions {
  std::string architecture = "sm_90a";
  std::vector<std::string> defines;      // "NAME=VALUE"
  std::function<bool()> cancelled = {};  // asked every few milliseconds; may be empty
};

// Equal input gives equal bytes. kInvalidArgument with the compiler's messages; kDeadlineExceeded
// when `cancelled` said so.
Result<HostCubin> compile_host_cubin(std::string_view source, const HostCubinOptions& options = {});

// The cubin that starts at `code`, by the sizes in its own header; nothing when it is none.
std::optional<std::string_view> host_cubin_bytes(const void* code);

// A loaded cubin; its code goes with the last owner.
class HostModule {
 public:
  // kInvalidArgument when `bytes` are no such cubin.
  static Result<std::shared_ptr<const HostModule>> load(std::string_view bytes);
  ~HostModule();
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  const kiln_fake::Module& module() const { return *module_; }
  // null when there is none of that name.
  const kiln_fake::Entry* find(std::string_view entry) const;

 private:
  HostModule(void* handle, const kiln_fake::Module* module) : handle_(handle), module_(module) {}
  void* handle_;
  const kiln_fake::Module* module_;
};

}  // namespace kiln::testing
