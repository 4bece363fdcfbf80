// NVRTC's functions are looked up in the opened library, which stays open for the life of the
// process: it keeps threads and memory of its own. The few prototypes are declared here, as in
// nvrtc.h of CUDA 12 and 13, so that no CUDA header is needed to build.
#include "compiler_core/compile/nvrtc.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <limits.h>
#include <locale.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "compiler_core/program/cubin_waits.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr std::array<const char*, 3> kFolders = {"lib64", "lib", "targets/x86_64-linux/lib"};
constexpr const char* kCudaSourceName = "kernel.cu";  // reaches nothing but the log

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
};
using nvrtcProgram = struct _nvrtcProgram*;

struct Functions {
  nvrtcResult (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(nvrtcResult result) = nullptr;
  nvrtcResult (*create_program)(nvrtcProgram* program, const char* text, const char* name,
                                int header_count, const char* const* headers,
                                const char* const* header_names) = nullptr;
  nvrtcResult (*destroy_program)(nvrtcProgram* program) = nullptr;
  nvrtcResult (*compile_program)(nvrtcProgram program, int count,
                                 const char* const* options) = nullptr;
  nvrtcResult (*log_size)(nvrtcProgram program, size_t* bytes) = nullptr;
  nvrtcResult (*log)(nvrtcProgram program, char* text) = nullptr;
  nvrtcResult (*cubin_size)(nvrtcProgram program, size_t* bytes) = nullptr;
  nvrtcResult (*cubin)(nvrtcProgram program, char* bytes) = nullptr;
  nvrtcResult (*ptx_size)(nvrtcProgram program, size_t* bytes) = nullptr;
  nvrtcResult (*ptx)(nvrtcProgram program, char* text) = nullptr;
  nvrtcResult (*arch_count)(int* count) = nullptr;
  nvrtcResult (*archs)(int* archs) = nullptr;
  nvrtcResult (*set_flow_callback)(nvrtcProgram program, int (*callback)(void*, void*),
                                   void* payload) = nullptr;  // not in every NVRTC
};

std::vector<std::string> names_under(const fs::path& toolkit) {
  std::vector<std::string> names;
  for (const char* name : kNames) {
    for (const char* folder : kFolders) names.push_back(toolkit / folder / name);
    names.push_back(toolkit / name);
  }
  return names;
}

// Where to look, in order. A file or soname that somebody named is the only place.
std::vector<std::string> places(const std::string& library) {
  std::vector<std::string> found;
  std::error_code ignored;
  if (!library.empty() && !fs::is_directory(library, ignored)) return {library};
  if (!library.empty()) found = names_under(library);
  found.insert(found.end(), kNames.begin(), kNames.end());
  for (std::string& name : names_under("/usr/local/cuda")) found.push_back(std::move(name));
  return found;
}

// NVRTC opens its built-in functions by name, which finds them in a toolkit's folder but not beside the
// NVRTC of a PyPI package: there they are opened first, and the name is known.
void open_builtins(void* nvrtc) {
  std::string folder(PATH_MAX, '\0');
  if (::dlinfo(nvrtc, RTLD_DI_ORIGIN, folder.data()) != 0) return;
  folder.resize(std::strlen(folder.c_str()));
  std::error_code ignored;
  for (const fs::directory_entry& file : fs::directory_iterator(folder, ignored))
    if (file.path().filename().string().starts_with("libnvrtc-builtins.so."))
      ::dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
}

Result<void*> open_library(const std::string& library) {
  std::string why;
  for (const std::string& place : places(library)) {
    if (void* handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      open_builtins(handle);
      return handle;
    }
    const char* error = ::dlerror();
    // A file that is there and does not load says more than the absence of the others.
    std::error_code ignored;
    if (why.empty() || fs::exists(place, ignored)) why = error == nullptr ? place : error;
  }
  return fail(
      Code::kNotFound,
      fmt::format(
          "no NVRTC, CUDA's run-time compiler: {} (looked for {}); name its file "
          "with --libnvrtc or KILN_LIBNVRTC, or the toolkit with CUDA_HOME",
          why, library.empty() ? "libnvrtc.so.13 and .12, also under /usr/local/cuda" : library));
}

template <class F>
bool look_up(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(handle, name));
  return function != nullptr;
}

Result<Functions> functions_of(void* handle) {
  Functions f;
  look_up(handle, "nvrtcSetFlowCallback", f.set_flow_callback);
  if (look_up(handle, "nvrtcVersion", f.version) &&
      look_up(handle, "nvrtcGetErrorString", f.error_string) &&
      look_up(handle, "nvrtcCreateProgram", f.create_program) &&
      look_up(handle, "nvrtcDestroyProgram", f.destroy_program) &&
      look_up(handle, "nvrtcCompileProgram", f.compile_program) &&
      look_up(handle, "nvrtcGetProgramLogSize", f.log_size) &&
      look_up(handle, "nvrtcGetProgramLog", f.log) &&
      look_up(handle, "nvrtcGetCUBINSize", f.cubin_size) &&
      look_up(handle, "nvrtcGetCUBIN", f.cubin) && look_up(handle, "nvrtcGetPTXSize", f.ptx_size) &&
      look_up(handle, "nvrtcGetPTX", f.ptx) &&
      look_up(handle, "nvrtcGetNumSupportedArchs", f.arch_count) &&
      look_up(handle, "nvrtcGetSupportedArchs", f.archs))
    return f;
  const char* missing = ::dlerror();
  return fail(Code::kNotFound, fmt::format("an NVRTC that is too old, or none: {}; CUDA 12 or 13's "
                                           "is needed",
                                           missing == nullptr ? "" : missing));
}

// One nvrtcProgram, destroyed whatever happens (NVRTC leaks megabytes otherwise).
class Compilation {
 public:
  Compilation(const Functions& f, const std::string& text) : f_(f) {
    created_ = f_.create_program(&program_, text.c_str(), kCudaSourceName, 0, nullptr, nullptr);
  }
  ~Compilation() {
    if (created_ == NVRTC_SUCCESS) f_.destroy_program(&program_);
  }
  Compilation(const Compilation&) = delete;

  nvrtcResult run(const std::vector<std::string>& flags, const std::function<bool()>& give_up) {
    if (created_ != NVRTC_SUCCESS) return created_;
    std::vector<const char*> words;
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    give_up_ = give_up;
    if (give_up_ && f_.set_flow_callback != nullptr)
      f_.set_flow_callback(program_, &Compilation::ask, this);
    // CUDA 12.0 to 12.6 leave the thread in another locale.
    const locale_t before = ::uselocale(nullptr);
    const nvrtcResult result =
        f_.compile_program(program_, static_cast<int>(words.size()), words.data());
    ::uselocale(before);
    return result;
  }

  bool gave_up() const { return gave_up_; }
  std::string log() const { return text(f_.log_size, f_.log, true); }
  std::string cubin() const { return text(f_.cubin_size, f_.cubin, false); }
  std::string ptx() const { return text(f_.ptx_size, f_.ptx, true); }

 private:
  static int ask(void* self, void*) {
    auto* compilation = static_cast<Compilation*>(self);
    compilation->gave_up_ = compilation->gave_up_ || compilation->give_up_();
    return compilation->gave_up_ ? 1 : 0;
  }
  template <class Size, class Get>
  std::string text(Size size_of, Get get, bool terminated) const {
    size_t size = 0;
    if (created_ != NVRTC_SUCCESS || size_of(program_, &size) != NVRTC_SUCCESS) return {};
    std::string bytes(size, '\0');
    if (get(program_, bytes.data()) != NVRTC_SUCCESS) return {};
    if (terminated && !bytes.empty()) bytes.pop_back();
    return bytes;
  }

  const Functions& f_;
  nvrtcProgram program_ = nullptr;
  nvrtcResult created_ = NVRTC_SUCCESS;
  std::function<bool()> give_up_;
  bool gave_up_ = false;
};

// An NVRTC names the first option that it does not know, which costs no compile: one that it does
// know is not named before the nonsense that follows it.
bool knows_option(const Functions& f, const std::string& option) {
  Compilation probe(f, "");
  probe.run({option, "--no-such-option-as-this"}, {});
  return probe.log().find(option) == std::string::npos;
}

std::vector<int> supported_archs(const Functions& f) {
  int count = 0;
  if (f.arch_count(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> archs(static_cast<size_t>(count));
  if (f.archs(archs.data()) != NVRTC_SUCCESS) return {};
  return archs;
}

// "13.0.88" as the header of a PTX file says it: nvrtcVersion knows no patch level, and two of them
// may print different code. "13.0" when there is none.
std::string version_of(const Functions& f, int arch) {
  Compilation probe(f, "");
  const auto result = probe.run({fmt::format("--gpu-architecture=compute_{}", arch)}, {});
  const std::string ptx = result == NVRTC_SUCCESS ? probe.ptx() : "";
  if (const size_t at = ptx.find(", V"); at != std::string::npos)
    return ptx.substr(at + 3, ptx.find_first_not_of("0123456789.", at + 3) - at - 3);
  int major = 0, minor = 0;
  f.version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

// "sm_90a": 90. 0 if it is no such name.
int sm_number(std::string_view isa) {
  int number = 0;
  if (isa.starts_with("sm_")) std::from_chars(isa.data() + 3, isa.data() + isa.size(), number);
  return number;
}

Error failure(nvrtcResult result, const Functions& f, const Compilation& compilation,
              const Target& target) {
  if (compilation.gave_up()) return {Code::kDeadlineExceeded, "the compile was given up", 0};
  const std::string log = compilation.log();
  switch (result) {
    case NVRTC_ERROR_COMPILATION:
      return {Code::kInvalidArgument, "NVRTC refuses a kernel:\n" + log, 0};
    case NVRTC_ERROR_INVALID_OPTION:  // the architecture is the only one that varies
      return {Code::kUnsupported,
              fmt::format("this NVRTC makes no code for {}: {}", target.to_string(), log), 0};
    default:
      return {Code::kUnavailable, fmt::format("NVRTC failed: {}\n{}", f.error_string(result), log),
              0};
  }
}

}  // namespace

struct Nvrtc::Library {
  Functions functions;
  std::string build, toolkit;
  std::vector<int> archs;                // 80, 90: what it makes code for
  std::vector<std::string> extra_flags;  // that not every NVRTC knows

  std::vector<std::string> flags(const Target& target) const {
    std::vector<std::string> all = nvrtc_flags(target);
    all.insert(all.end(), extra_flags.begin(), extra_flags.end());
    return all;
  }
};

Nvrtc::Nvrtc(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

Result<Nvrtc> Nvrtc::find(const std::string& library) {
  TRY(void* const handle, open_library(library));
  auto opened = std::make_shared<Library>();
  TRY(opened->functions, functions_of(handle));
  const Functions& f = opened->functions;
  int major = 0, minor = 0;
  f.version(&major, &minor);
  opened->toolkit = fmt::format("cuda-{}", major);
  opened->archs = supported_archs(f);
  const int arch = opened->archs.empty() ? 80 : opened->archs.front();
  opened->build = "nvrtc " + version_of(f, arch);
  // No cache on disk, which would also swallow ptxas's report; none of the CUDA features that
  // kernels without headers do not use; names of what is in no other module that do not come from
  // the process's id, or no two processes would make the same binary.
  for (const char* flag : {"--no-cache", "--minimal", "--frandom-seed=kiln"})
    if (knows_option(f, flag)) opened->extra_flags.emplace_back(flag);
  return Nvrtc(std::move(opened));
}

const std::string& Nvrtc::build() const {
  return library_->build;
}

const std::string& Nvrtc::toolkit() const {
  return library_->toolkit;
}

std::vector<Target> Nvrtc::targets() const {
  std::vector<Target> targets;
  for (const int arch : library_->archs)
    for (const char* suffix : {"", "a"})
      if (*suffix == 0 || arch >= 90)
        targets.push_back(
            {Backend::kCuda, fmt::format("sm_{}{}", arch, suffix), "", 0, library_->toolkit});
  return targets;
}

Digest Nvrtc::candidate_key(const Source& source, const Target& target) const {
  const std::vector<std::string> flags = library_->flags(target);
  Hasher hasher("kiln.candidate.v1");
  hasher.add(source.text).begin_list(flags.size());
  for (const std::string& flag : flags) hasher.add(flag);
  return hasher.add(library_->build).finish();
}

Result<Nvrtc::Object> Nvrtc::compile(const Source& source, const Target& target,
                                     const std::function<bool()>& give_up) const {
  const int arch = target.backend == Backend::kCuda ? sm_number(target.isa) : 0;
  const auto& archs = library_->archs;
  if (arch == 0 || (!archs.empty() && std::ranges::find(archs, arch) == archs.end()))
    return fail(Code::kUnsupported,
                fmt::format("{} makes no code for {}", library_->build, target.to_string()));
  const Functions& f = library_->functions;
  Compilation compilation(f, source.text);
  const nvrtcResult result = compilation.run(library_->flags(target), give_up);
  if (result != NVRTC_SUCCESS) return fail(failure(result, f, compilation, target));
  Object object;
  object.artifact.binary = compilation.cubin();
  if (object.artifact.binary.empty())
    return fail(Code::kUnavailable, "NVRTC gave no cubin for " + target.to_string());
  object.artifact.recipe = with_safe_launches(source.recipe, object.artifact.binary);
  object.artifact.digest = Digest::of(object.artifact.binary);
  object.resources = parse_resources(compilation.log());
  return object;
}

}  // namespace kiln
