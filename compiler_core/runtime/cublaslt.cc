#include "compiler_core/runtime/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "compiler_core/runtime/library_call.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kNames = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr const char* kToolkitFolders[] = {"/usr/local/cuda/lib64",
                                           "/usr/local/cuda/targets/x86_64-linux/lib"};
// Where pip and conda put Python packages; each below has python3.*/{site,dist}-packages.
constexpr const char* kPythonFolders[] = {"/usr/local/lib", "/usr/lib", "/opt/conda/lib",
                                          "/opt/venv/lib"};

// The places where a driver's cuBLASLt may be. A library that the process has already (PyTorch's)
// is found by its name.
class Places {
 public:
  explicit Places(int driver) : newest_(driver / 1000) {}

  std::vector<std::string> list(const std::string& file, const std::string& libcuda) {
    std::error_code ignored;
    if (!file.empty() && !fs::is_directory(file, ignored)) return {file};
    if (const fs::path folder = fs::path(libcuda).parent_path(); !folder.empty())
      add_folder(folder);
    if (!file.empty()) {
      for (const char* folder : {"", "lib64", "lib"}) add_folder(fs::path(file) / folder);
      add_python(fs::path(file) / "lib");
    }
    for (const char* name : kNames) add(name);
    for (const char* folder : kToolkitFolders) add_folder(folder);
    for (const char* folder : kPythonFolders) add_python(folder);
    return std::move(found_);
  }

 private:
  void add(const fs::path& file) {
    const std::string name = file.filename();
    if (std::atoi(name.substr(name.rfind('.') + 1).c_str()) <= newest_) found_.push_back(file);
  }
  void add_folder(const fs::path& folder) {
    for (const char* name : kNames) add(folder / name);
  }
  // NVIDIA's libraries as PyPI packages: nvidia/cu13/lib, nvidia/cublas/lib.
  void add_python(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& python : fs::directory_iterator(folder, ignored)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const char* package : {"cu13", "cublas"}) {
          const fs::path lib = python.path() / packages / "nvidia" / package / "lib";
          if (fs::exists(lib, ignored)) add_folder(lib);
        }
    }
  }

  const int newest_;  // CUDA major version
  std::vector<std::string> found_;
};

// Without a handle.
Result<CublasLt> open_cublaslt(const std::string& file, const std::string& libcuda, int driver) {
  if (file == kNoLibraries)
    return fail(Code::kUnsupported, "cuBLASLt is left out: libraries are not to be called here");
  const std::vector<std::string> tried = Places(driver).list(file, libcuda);
  void* handle = nullptr;
  for (const std::string& place : tried)
    if ((handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
  if (handle == nullptr)
    return fail(Code::kUnsupported,
                fmt::format("no cuBLASLt here (looked for {})", fmt::join(tried, ", ")));
  CublasLt lt;
  const auto lacks = [](const char* symbol) {
    return fail(Code::kUnsupported, fmt::format("the cuBLASLt here lacks {}", symbol));
  };
#define KILN_FIND(name, ...) \
  if (!find_symbol(handle, #name, lt.name)) return lacks(#name);
  KILN_CUBLASLT_FUNCTIONS(KILN_FIND)
#undef KILN_FIND
  if (!find_symbol(handle, "cublasLtGetVersion", lt.cublasLtGetVersion) ||
      !find_symbol(handle, "cublasLtGetStatusString", lt.cublasLtGetStatusString))
    return lacks("cublasLtGetVersion or cublasLtGetStatusString");
  lt.version = std::to_string(lt.cublasLtGetVersion());
  return lt;
}

Result<CublasLt> start_cublaslt(const CudaDevice::Impl& impl) {
  TRY(CublasLt lt, open_cublaslt(impl.cublaslt_file, impl.libcuda_file, impl.facts.driver));
  TRY_STATUS(lt.check(lt.cublasLtCreate(&lt.handle), "starting it", Code::kUnsupported));
  return lt;
}

}  // namespace

Result<const CublasLt*> cublaslt_of(const CudaDevice& device) {
  const CudaDevice::Impl& impl = device.impl();
  TRY(const CurrentContext current, device.enter());
  std::call_once(impl.cublaslt_once, [&impl] {
    auto opened = start_cublaslt(impl);
    if (opened)
      impl.cublaslt = {new CublasLt(*std::move(opened)), [](const CublasLt* lt) {
                         static_cast<void>(lt->cublasLtDestroy(lt->handle));
                         delete lt;
                       }};
    else
      impl.cublaslt_missing = std::move(opened).error();
  });
  if (impl.cublaslt == nullptr) return fail(impl.cublaslt_missing);
  return impl.cublaslt.get();
}

Result<std::string> library_version(const CudaDevice& device, std::string_view library) {
  if (library != "cublaslt")
    return fail(Code::kUnsupported, fmt::format("no library '{}' is known here", library));
  TRY(const CublasLt* lt, cublaslt_of(device));
  return lt->version;
}

std::vector<LibraryVersion> installed_libraries(const std::string& file, const std::string& libcuda,
                                                int driver) {
  const auto lt = open_cublaslt(file, libcuda, driver);
  if (!lt) return {};
  return {{"cublaslt", lt->version}};
}

}  // namespace kiln
