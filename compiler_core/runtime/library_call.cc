#include "compiler_core/runtime/library_call.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "compiler_core/runtime/cublaslt_api.h"
#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {

// cuBLASLt's functions and a handle of one device.
struct CublasLt {
#define KILN_FIELD(name, ...) cublasStatus_t (*name)(__VA_ARGS__) = nullptr;
  KILN_CUBLASLT_FUNCTIONS(KILN_FIELD)
#undef KILN_FIELD
  size_t (*cublasLtGetVersion)() = nullptr;
  const char* (*cublasLtGetStatusString)(cublasStatus_t status) = nullptr;
  cublasLtHandle_t handle = nullptr;
  std::string version;

  Status check(cublasStatus_t status, std::string_view doing, Code code) const {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    return fail(code, fmt::format("cuBLASLt: {}: {}", doing, cublasLtGetStatusString(status)));
  }
};

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kNames = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr const char* kToolkitFolders[] = {"/usr/local/cuda/lib64",
                                           "/usr/local/cuda/targets/x86_64-linux/lib"};
// Where pip and conda put Python packages; each below has python3.*/{site,dist}-packages.
constexpr const char* kPythonFolders[] = {"/usr/local/lib", "/usr/lib", "/opt/conda/lib",
                                          "/opt/venv/lib"};
constexpr uint32_t kAlignment = 16;   // of buffers, as the launch model has it
constexpr size_t kMostProblems = 64;  // sizes of a call with symbols that are kept prepared

// NVIDIA's libraries as PyPI packages: nvidia/cu13/lib, nvidia/cublas/lib.
void add_python_places(std::vector<std::string>& places) {
  std::error_code ignored;
  for (const char* folder : kPythonFolders)
    for (const auto& python : fs::directory_iterator(folder, ignored)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const char* package : {"cu13", "cublas"})
          for (const char* name : kNames) {
            const fs::path file = python.path() / packages / "nvidia" / package / "lib" / name;
            if (fs::exists(file, ignored)) places.push_back(file);
          }
    }
}

// A file that somebody named is the only place. Otherwise the folder of a driver that was named by
// its path comes first. A library that the process has already (PyTorch's) is found by its name.
std::vector<std::string> places(const std::string& library, const std::string& libcuda) {
  if (!library.empty()) return {library};
  std::vector<std::string> found;
  if (const fs::path folder = fs::path(libcuda).parent_path(); !folder.empty())
    for (const char* name : kNames) found.push_back(folder / name);
  found.insert(found.end(), kNames.begin(), kNames.end());
  for (const char* folder : kToolkitFolders)
    for (const char* name : kNames) found.push_back(fmt::format("{}/{}", folder, name));
  add_python_places(found);
  return found;
}

template <class Function>
bool find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

Result<CublasLt> open_cublaslt(const std::string& library, const std::string& libcuda) {
  const std::vector<std::string> tried = places(library, libcuda);
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
  if (!find(handle, #name, lt.name)) return lacks(#name);
  KILN_CUBLASLT_FUNCTIONS(KILN_FIND)
#undef KILN_FIND
  if (!find(handle, "cublasLtGetVersion", lt.cublasLtGetVersion) ||
      !find(handle, "cublasLtGetStatusString", lt.cublasLtGetStatusString))
    return lacks("cublasLtGetVersion or cublasLtGetStatusString");
  lt.version = std::to_string(lt.cublasLtGetVersion());
  TRY_STATUS(lt.check(lt.cublasLtCreate(&lt.handle), "starting it", Code::kUnsupported));
  return lt;
}

Result<const CublasLt*> cublaslt_of(const CudaDevice& device) {
  const CudaDevice::Impl& impl = device.impl();
  TRY_STATUS(device.make_current());
  std::call_once(impl.cublaslt_once, [&impl] {
    auto opened = open_cublaslt(impl.cublaslt_file, impl.libcuda_file);
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

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::array<uint8_t, sizeof algorithm> bytes{};
  std::memcpy(bytes.data(), &algorithm, sizeof algorithm);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

cublasLtMatmulAlgo_t from_hex(const std::string& text) {
  std::array<uint8_t, sizeof(cublasLtMatmulAlgo_t)> bytes{};
  for (size_t i = 0; i < bytes.size() && 2 * i + 1 < text.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, bytes.data(), sizeof algorithm);
  return algorithm;
}

Result<cudaDataType_t> data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return fail(Code::kInvalidArgument,
                  fmt::format("cuBLASLt multiplies no {}", to_string(dtype)));
  }
}

uint32_t epilogue_of(const std::string& name) {
  if (name == "bias") return CUBLASLT_EPILOGUE_BIAS;
  if (name == "relu") return CUBLASLT_EPILOGUE_RELU;
  if (name == "relu_bias") return CUBLASLT_EPILOGUE_RELU_BIAS;
  if (name == "gelu_tanh") return CUBLASLT_EPILOGUE_GELU;
  if (name == "gelu_tanh_bias") return CUBLASLT_EPILOGUE_GELU_BIAS;
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// A call at given sizes, in cuBLASLt's words. It computes in columns what is here in rows:
// d^T = b^T a^T, so that its first operand is our b, whose rows it takes for columns.
class Problem {
 public:
  static Result<std::unique_ptr<Problem>> make(const CublasLt& lt, const LibraryCall& call,
                                               std::span<const int64_t> symbols) {
    std::unique_ptr<Problem> problem(new Problem(lt, call));
    TRY(const int64_t m, call.m.evaluate(symbols));
    TRY(const int64_t n, call.n.evaluate(symbols));
    TRY(const int64_t k, call.k.evaluate(symbols));
    TRY(const int64_t batch, call.batch.evaluate(symbols));
    TRY_STATUS(problem->describe());
    TRY(problem->first_, problem->layout(call.b, k, n, batch, symbols));
    TRY(problem->second_, problem->layout(call.a, m, k, batch, symbols));
    TRY(problem->result_, problem->layout(call.d, m, n, batch, symbols));
    return problem;
  }

  ~Problem() {
    for (cublasLtMatrixLayout_t layout : {first_, second_, result_})
      if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
    if (desc_ != nullptr) lt_.cublasLtMatmulDescDestroy(desc_);
  }
  Problem(const Problem&) = delete;

  Result<std::vector<cublasLtMatmulHeuristicResult_t>> heuristics() const {
    cublasLtMatmulPreference_t preference = nullptr;
    TRY_STATUS(check(lt_.cublasLtMatmulPreferenceCreate(&preference), "making a preference"));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kLibraryRanks);
    int count = 0;
    const Status found = ask(preference, results, count);
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    TRY_STATUS(found);
    results.resize(static_cast<size_t>(count));
    return results;
  }

  // Makes `algorithm_` the one that the call names.
  Status choose() {
    if (!call_.algorithm.empty()) {
      algorithm_ = from_hex(call_.algorithm);
      cublasLtMatmulHeuristicResult_t result{};
      TRY_STATUS(check(lt_.cublasLtMatmulAlgoCheck(lt_.handle, desc_, first_, second_, result_,
                                                   result_, &algorithm_, &result),
                       "its algorithm"));
      workspace_bytes_ = result.workspaceSize;
      return {};
    }
    TRY(const auto found, heuristics());
    if (static_cast<size_t>(call_.rank) >= found.size())
      return fail(Code::kInvalidArgument,
                  fmt::format("cuBLASLt names {} algorithms for this product, none of rank {}",
                              found.size(), call_.rank));
    algorithm_ = found[static_cast<size_t>(call_.rank)].algo;
    workspace_bytes_ = found[static_cast<size_t>(call_.rank)].workspaceSize;
    return {};
  }

  Status launch(std::span<const DevicePtr> args, DevicePtr workspace, int64_t workspace_bytes,
                Stream stream) const {
    const auto at = [&](int buffer) {
      return reinterpret_cast<void*>(args[static_cast<size_t>(buffer)]);
    };
    if (workspace_bytes_ > static_cast<size_t>(workspace_bytes))
      return fail(
          Code::kInvalidArgument,
          fmt::format("cuBLASLt's algorithm needs a workspace of {} bytes, the launch has {}",
                      workspace_bytes_, workspace_bytes));
    if (call_.bias >= 0) {
      const void* const bias = at(call_.bias);
      TRY_STATUS(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    }
    const bool is_f64 = call_.compute == "f64";
    const double one64 = 1, beta64 = call_.c >= 0 ? 1 : 0;
    const float one32 = 1, beta32 = call_.c >= 0 ? 1 : 0;
    const void* const alpha = is_f64 ? static_cast<const void*>(&one64) : &one32;
    const void* const beta = is_f64 ? static_cast<const void*>(&beta64) : &beta32;
    void* const d = at(call_.d.buffer);
    return lt_.check(
        lt_.cublasLtMatmul(lt_.handle, desc_, alpha, at(call_.b.buffer), first_, at(call_.a.buffer),
                           second_, beta, call_.c >= 0 ? at(call_.c) : d, result_, d, result_,
                           &algorithm_, reinterpret_cast<void*>(workspace), workspace_bytes_,
                           static_cast<CUstream>(stream)),
        "a product", Code::kUnavailable);
  }

 private:
  Problem(const CublasLt& lt, const LibraryCall& call) : lt_(lt), call_(call) {}

  Status check(cublasStatus_t status, std::string_view doing) const {
    return lt_.check(status, doing, Code::kInvalidArgument);
  }
  template <class T>
  Status set(cublasLtMatmulDescAttributes_t which, const T& value) const {
    return check(lt_.cublasLtMatmulDescSetAttribute(desc_, which, &value, sizeof value),
                 "describing a product");
  }

  Status describe() {
    const cublasComputeType_t compute = call_.compute == "f64"    ? CUBLAS_COMPUTE_64F
                                        : call_.compute == "tf32" ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F;
    TRY_STATUS(check(lt_.cublasLtMatmulDescCreate(
                         &desc_, compute, compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F),
                     "describing a product"));
    const auto operation = [](const LibraryCall::Matrix& matrix) {
      return int32_t{matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N};
    };
    TRY_STATUS(set(CUBLASLT_MATMUL_DESC_TRANSA, operation(call_.b)));
    TRY_STATUS(set(CUBLASLT_MATMUL_DESC_TRANSB, operation(call_.a)));
    return set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(call_.epilogue));
  }

  // Of `rows` x `columns` before a transposition; in memory row by row.
  Result<cublasLtMatrixLayout_t> layout(const LibraryCall::Matrix& matrix, int64_t rows,
                                        int64_t columns, int64_t batch,
                                        std::span<const int64_t> symbols) const {
    if (matrix.transposed) std::swap(rows, columns);
    TRY(const cudaDataType_t type, data_type(matrix.dtype));
    TRY(const int64_t ld, matrix.ld.evaluate(symbols));
    TRY(const int64_t stride, matrix.batch_stride.evaluate(symbols));
    cublasLtMatrixLayout_t made = nullptr;
    TRY_STATUS(check(lt_.cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(columns),
                                                    static_cast<uint64_t>(rows), ld),
                     "describing an operand"));
    const int32_t count = static_cast<int32_t>(batch);
    Status set = check(lt_.cublasLtMatrixLayoutSetAttribute(
                           made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                       "describing a batch");
    if (set)
      set = check(lt_.cublasLtMatrixLayoutSetAttribute(
                      made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                  "describing a batch");
    if (set) return made;
    lt_.cublasLtMatrixLayoutDestroy(made);
    return fail(set.error());
  }

  Status ask(cublasLtMatmulPreference_t preference,
             std::vector<cublasLtMatmulHeuristicResult_t>& results, int& count) const {
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      return check(
          lt_.cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value),
          "setting a preference");
    };
    TRY_STATUS(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                      static_cast<uint64_t>(kLibraryWorkspaceBytes)));
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      TRY_STATUS(prefer(which, kAlignment));
    return check(lt_.cublasLtMatmulAlgoGetHeuristic(
                     lt_.handle, desc_, first_, second_, result_, result_, preference,
                     static_cast<int>(results.size()), results.data(), &count),
                 "looking for algorithms");
  }

  const CublasLt& lt_;
  const LibraryCall& call_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_bytes_ = 0;
};

}  // namespace

Result<std::string> library_version(const CudaDevice& device, std::string_view library) {
  if (library != "cublaslt")
    return fail(Code::kUnsupported, fmt::format("no library '{}' is known here", library));
  TRY(const CublasLt* lt, cublaslt_of(device));
  return lt->version;
}

Result<std::vector<LibraryAlgorithm>> library_algorithms(const CudaDevice& device,
                                                         const LibraryCall& call,
                                                         std::span<const int64_t> symbols) {
  TRY_STATUS(library_version(device, call.library).map([](const std::string&) {}));
  TRY(const CublasLt* lt, cublaslt_of(device));
  TRY(const auto problem, Problem::make(*lt, call, symbols));
  TRY(const auto results, problem->heuristics());
  std::vector<LibraryAlgorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : results)
    algorithms.push_back({to_hex(result.algo), static_cast<int64_t>(result.workspaceSize),
                          static_cast<double>(result.wavesCount)});
  return algorithms;
}

struct LoadedLibraryCall::Impl {
  std::shared_ptr<const CudaDevice> device;
  const CublasLt* lt = nullptr;
  LibraryCall call;

  std::mutex mu;  // guards `problems`, and their descriptions while a launch sets its pointers
  std::map<std::vector<int64_t>, std::unique_ptr<Problem>> problems;  // by symbols

  Result<const Problem*> at(std::span<const int64_t> dims) {
    std::vector<int64_t> key(dims.begin(), dims.end());
    if (const auto found = problems.find(key); found != problems.end()) return found->second.get();
    TRY(auto problem, Problem::make(*lt, call, dims));
    TRY_STATUS(problem->choose());
    if (problems.size() == kMostProblems) problems.clear();
    return (problems[std::move(key)] = std::move(problem)).get();
  }
};

LoadedLibraryCall::LoadedLibraryCall(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedLibraryCall::~LoadedLibraryCall() = default;

Result<std::unique_ptr<const LoadedLibraryCall>> LoadedLibraryCall::load(
    std::shared_ptr<const CudaDevice> device, const LibraryCall& call) {
  TRY(const std::string version, library_version(*device, call.library));
  if (!call.version.empty() && call.version != version)
    return fail(Code::kUnsupported, fmt::format("the program calls {} {}; the one here is {}",
                                                call.library, call.version, version));
  auto impl = std::make_unique<Impl>();
  TRY(impl->lt, cublaslt_of(*device));
  impl->device = std::move(device);
  impl->call = call;
  const std::vector<Dim> sizes = sizes_of(call);
  if (std::all_of(sizes.begin(), sizes.end(), [](const Dim& dim) { return dim.is_constant(); }))
    TRY_STATUS(impl->at({}).map([](const Problem*) {}));
  return std::unique_ptr<const LoadedLibraryCall>(new LoadedLibraryCall(std::move(impl)));
}

Status LoadedLibraryCall::launch(std::span<const DevicePtr> args, DevicePtr workspace,
                                 int64_t workspace_bytes, std::span<const int64_t> dims,
                                 Stream stream) const {
  TRY_STATUS(impl_->device->make_current());
  const std::lock_guard lock(impl_->mu);
  TRY(const Problem* problem, impl_->at(dims));
  return problem->launch(args, workspace, workspace_bytes, stream);
}

}  // namespace kiln
