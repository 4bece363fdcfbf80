#include "compiler_core/runtime/kernel.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "compiler_core/base/check.h"
#include "compiler_core/runtime/call_sizes.h"

namespace kiln {
namespace {

using Entry = void (*)(void* const* args, const int64_t* dims, int64_t begin, int64_t end,
                       void* workspace, void* scratch);

// Far beyond what any kernel keeps in a core's caches.
constexpr int64_t kMostScratchBytes = int64_t{1} << 28;

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

// An anonymous file that closes itself.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("kiln-kernel", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  Status write(std::string_view bytes) const {
    while (fd_ >= 0 && !bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    if (fd_ >= 0 && bytes.empty()) return {};
    return fail(Code::kUnavailable,
                fmt::format("cannot hold a kernel in memory: {}", std::strerror(errno)));
  }

 private:
  int fd_;
};

// A path to `fd` that no earlier load used: the loader takes a path it has seen for the library it
// has, and descriptors are reused. The number of this load stands in the path as "/." for one and
// "/" for zero, which the kernel reads as nothing.
std::string unique_path(int fd) {
  static std::atomic<uint64_t> loads{0};
  std::string path = "/proc/self/fd";
  for (uint64_t rest = loads.fetch_add(1, std::memory_order_relaxed); rest != 0; rest >>= 1)
    path += (rest & 1) != 0 ? "/." : "/";
  return fmt::format("{}/{}", path, fd);
}

Result<Library> open_library(std::string_view binary) {
  const MemoryFile file;
  TRY_STATUS(file.write(binary));
  Library library(::dlopen(unique_path(file.fd()).c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library)
    return fail(Code::kInvalidArgument,
                fmt::format("the loader refuses a kernel: {}", ::dlerror()));
  return library;
}

Result<Entry> find_entry(const Library& library, const std::string& name) {
  void* symbol = ::dlsym(library.get(), name.c_str());
  if (symbol == nullptr)
    return fail(Code::kInvalidArgument, fmt::format("a kernel has no entry '{}'", name));
  static_cast<void>(*static_cast<const volatile char*>(symbol));  // faults the page in
  return reinterpret_cast<Entry>(symbol);
}

// The state that the pool's threads share during one phase.
struct PhaseCall {
  Entry entry;
  void* const* args;
  const int64_t* dims;
  void* workspace;
  const ThreadPool* pool;
};

void call_phase(void* context, int64_t begin, int64_t end, int thread) {
  const auto& call = *static_cast<const PhaseCall*>(context);
  call.entry(call.args, call.dims, begin, end, call.workspace, call.pool->scratch(thread));
}

// Phases whose blocks are numbered one after the other: those of phase i end with ends[i].
struct PhasesSideBySide {
  std::array<PhaseCall, Kernel::kMostSideBySide> phases;
  std::array<int64_t, Kernel::kMostSideBySide> ends;
};

void call_side_by_side(void* context, int64_t begin, int64_t end, int thread) {
  auto& calls = *static_cast<PhasesSideBySide*>(context);
  int64_t first = 0;  // block of phase i
  for (size_t i = 0; first < end; first = calls.ends[i++]) {
    const int64_t from = std::max(begin, first), to = std::min(end, calls.ends[i]);
    if (from < to) call_phase(&calls.phases[i], from - first, to - first, thread);
  }
}

}  // namespace

struct Kernel::Impl {
  Recipe recipe;
  Library library;
  std::vector<Entry> entries;  // one per phase
};

Kernel::Kernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Kernel::Kernel(Kernel&&) noexcept = default;
Kernel& Kernel::operator=(Kernel&&) noexcept = default;
Kernel::~Kernel() = default;

Result<Kernel> Kernel::load(const Artifact& artifact) {
  if (Digest::of(artifact.binary) != artifact.digest)
    return fail(Code::kCorruption,
                fmt::format("a kernel's bytes are not those of {}", artifact.digest.short_hex()));
  const int64_t scratch = artifact.recipe.scratch_bytes;
  if (scratch < 0 || scratch > kMostScratchBytes)
    return fail(Code::kInvalidArgument, fmt::format("scratch of {} bytes a thread", scratch));
  if (artifact.recipe.calls_library())
    return fail(Code::kUnsupported, "a kernel for the CPU calls a library, which none here does");
  auto impl = std::make_unique<Impl>();
  impl->recipe = artifact.recipe;
  TRY(impl->library, open_library(artifact.binary));
  for (const Phase& phase : artifact.recipe.phases) {
    TRY(const Entry entry, find_entry(impl->library, phase.entry));
    impl->entries.push_back(entry);
  }
  return Kernel(std::move(impl));
}

const Recipe& Kernel::recipe() const {
  return impl_->recipe;
}

void Kernel::launch(std::span<void* const> args, std::span<const int64_t> dims, void* workspace,
                    ThreadPool& pool) const {
  const Recipe& recipe = impl_->recipe;
  CHECK(args.size() == recipe.inputs.size() + recipe.outputs.size(), "one buffer an argument");
  pool.reserve_scratch(recipe.scratch_bytes);
  for (size_t i = 0; i < recipe.phases.size(); ++i) {
    PhaseCall call{impl_->entries[i], args.data(), dims.data(), workspace, &pool};
    pool.run(blocks_of(recipe.phases[i], dims), call_phase, &call);
  }
}

void Kernel::launch_side_by_side(std::span<const BoundLaunch> calls, ThreadPool& pool) {
  CHECK(calls.size() <= kMostSideBySide, "so many launches at once");
  PhasesSideBySide side_by_side;
  int64_t blocks = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& [kernel, args, dims] = calls[i];
    const Recipe& recipe = kernel->recipe();
    CHECK(args.size() == recipe.inputs.size() + recipe.outputs.size(), "one buffer an argument");
    CHECK(recipe.phases.size() == 1, "no phase waits for another");
    pool.reserve_scratch(recipe.scratch_bytes);
    side_by_side.phases[i] = {kernel->impl_->entries[0], args.data(), dims.data(), nullptr, &pool};
    side_by_side.ends[i] = blocks += blocks_of(recipe.phases[0], dims);
  }
  pool.run(blocks, call_side_by_side, &side_by_side);
}

}  // namespace kiln
