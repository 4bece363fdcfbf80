#include "compiler_core/runtime/library_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "compiler_core/runtime/cublaslt.h"

namespace kiln {
namespace {

constexpr size_t kMostProblems = 64;  // sizes and alignments of a call that are kept prepared

// Alignments of a, b, c and d in bytes, up to what cuMemAlloc gives.
using Alignments = std::array<uint32_t, 4>;
constexpr uint32_t kUsualAlignment = 256;
constexpr Alignments kUsualAlignments = {kUsualAlignment, kUsualAlignment, kUsualAlignment,
                                         kUsualAlignment};

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

Result<int64_t> offset_bytes(const LibraryCall::Matrix& matrix, std::span<const int64_t> symbols) {
  TRY(const int64_t elements, matrix.offset.evaluate(symbols));
  return elements * size_of(matrix.dtype);
}

// Alignments, in bytes, of a call's operands in these buffers, at most kUsualAlignment.
Result<Alignments> alignments_of(const LibraryCall& call, std::span<const DevicePtr> args,
                                 std::span<const int64_t> symbols) {
  const auto of = [&](int buffer, const LibraryCall::Matrix& matrix) -> Result<uint32_t> {
    TRY(const int64_t offset, offset_bytes(matrix, symbols));
    const DevicePtr at = args[static_cast<size_t>(buffer)] + static_cast<DevicePtr>(offset);
    return at == 0 ? kUsualAlignment
                   : static_cast<uint32_t>(std::min<DevicePtr>(at & (~at + 1), kUsualAlignment));
  };
  Alignments alignments{};
  TRY(alignments[0], of(call.a.buffer, call.a));
  TRY(alignments[1], of(call.b.buffer, call.b));
  TRY(alignments[2], of(call.c >= 0 ? call.c : call.d.buffer, call.d));
  TRY(alignments[3], of(call.d.buffer, call.d));
  return alignments;
}

// A call at given sizes, in cuBLASLt's terms. It computes in columns what is here in rows:
// d^T = b^T a^T, so that its first operand is our b, whose rows it takes for columns.
class Problem {
 public:
  static Result<std::unique_ptr<Problem>> make(const CublasLt& lt, const LibraryCall& call,
                                               std::span<const int64_t> symbols,
                                               const Alignments& alignments) {
    std::unique_ptr<Problem> problem(new Problem(lt, call, alignments));
    TRY(const int64_t m, call.m.evaluate(symbols));
    TRY(const int64_t n, call.n.evaluate(symbols));
    TRY(const int64_t k, call.k.evaluate(symbols));
    TRY(const int64_t batch, call.batch.evaluate(symbols));
    TRY_STATUS(problem->describe());
    TRY(problem->first_, problem->layout(call.b, k, n, batch, symbols));
    TRY(problem->second_, problem->layout(call.a, m, k, batch, symbols));
    TRY(problem->result_, problem->layout(call.d, m, n, batch, symbols));
    TRY(problem->a_bytes_, offset_bytes(call.a, symbols));
    TRY(problem->b_bytes_, offset_bytes(call.b, symbols));
    TRY(problem->d_bytes_, offset_bytes(call.d, symbols));
    return problem;
  }

  ~Problem() {
    for (cublasLtMatrixLayout_t layout : {first_, second_, result_})
      if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
    if (desc_ != nullptr) lt_.cublasLtMatmulDescDestroy(desc_);
  }
  Problem(const Problem&) = delete;

  Result<std::vector<cublasLtMatmulHeuristicResult_t>> heuristics(int64_t workspace_bytes) const {
    cublasLtMatmulPreference_t preference = nullptr;
    TRY_STATUS(check(lt_.cublasLtMatmulPreferenceCreate(&preference), "making a preference"));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kLibraryRanks);
    int count = 0;
    const Status found = ask(preference, workspace_bytes, results, count);
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    TRY_STATUS(found);
    results.resize(static_cast<size_t>(count));
    return results;
  }

  // Makes `algorithm_` the one that the call names; where the heuristics name fewer and it need
  // not be exactly that one, their last.
  Status choose(int64_t workspace_bytes, bool exactly) {
    if (!call_.algorithm.empty()) {
      algorithm_ = from_hex(call_.algorithm);
      cublasLtMatmulHeuristicResult_t result{};
      TRY_STATUS(check(lt_.cublasLtMatmulAlgoCheck(lt_.handle, desc_, first_, second_, result_,
                                                   result_, &algorithm_, &result),
                       "its algorithm"));
      workspace_bytes_ = result.workspaceSize;
      return {};
    }
    TRY(const auto found, heuristics(workspace_bytes));
    size_t rank = static_cast<size_t>(call_.rank);
    if (!exactly && !found.empty()) rank = std::min(rank, found.size() - 1);
    if (rank >= found.size())
      return fail(Code::kInvalidArgument,
                  fmt::format("cuBLASLt names {} algorithms for this product, none of rank {}",
                              found.size(), call_.rank));
    algorithm_ = found[rank].algo;
    workspace_bytes_ = found[rank].workspaceSize;
    return {};
  }

  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_bytes_); }

  Status launch(std::span<const DevicePtr> args, DevicePtr workspace, int64_t workspace_bytes,
                Stream stream) const {
    const auto at = [&](int buffer, int64_t offset = 0) {
      return reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
          args[static_cast<size_t>(buffer)] + static_cast<DevicePtr>(offset));
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
    void* const d = at(call_.d.buffer, d_bytes_);
    void* const room = reinterpret_cast<void*>(workspace);  // NOLINT(performance-no-int-to-ptr)
    return lt_.check(
        lt_.cublasLtMatmul(lt_.handle, desc_, alpha, at(call_.b.buffer, b_bytes_), first_,
                           at(call_.a.buffer, a_bytes_), second_, beta,
                           call_.c >= 0 ? at(call_.c, d_bytes_) : d, result_, d, result_,
                           &algorithm_, room, workspace_bytes_, static_cast<CUstream>(stream)),
        "a product", Code::kUnavailable);
  }

 private:
  Problem(const CublasLt& lt, const LibraryCall& call, const Alignments& alignments)
      : lt_(lt), call_(call), alignments_(alignments) {}

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
    if (call_.bias >= 0) {  // the heuristics want one; a launch has its own
      const auto any = static_cast<uintptr_t>(kUsualAlignment);
      TRY_STATUS(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, any));
    }
    return set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(call_.epilogue));
  }

  // The layout of a matrix of `rows` x `columns` before a transposition; row-major in memory.
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

  Status ask(cublasLtMatmulPreference_t preference, int64_t workspace_bytes,
             std::vector<cublasLtMatmulHeuristicResult_t>& results, int& count) const {
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      return check(
          lt_.cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value),
          "setting a preference");
    };
    TRY_STATUS(
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes)));
    const auto& [a, b, c, d] = alignments_;
    TRY_STATUS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b));  // its first operand
    TRY_STATUS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a));
    TRY_STATUS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c));
    TRY_STATUS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d));
    return check(lt_.cublasLtMatmulAlgoGetHeuristic(
                     lt_.handle, desc_, first_, second_, result_, result_, preference,
                     static_cast<int>(results.size()), results.data(), &count),
                 "looking for algorithms");
  }

  const CublasLt& lt_;
  const LibraryCall& call_;
  const Alignments alignments_;
  int64_t a_bytes_ = 0, b_bytes_ = 0, d_bytes_ = 0;  // before the first matrix
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_bytes_ = 0;
};

}  // namespace

Result<std::vector<LibraryAlgorithm>> library_algorithms(const CudaDevice& device,
                                                         const LibraryCall& call,
                                                         std::span<const int64_t> symbols) {
  TRY_STATUS(library_version(device, call.library).map([](const std::string&) {}));
  TRY(const CublasLt* lt, cublaslt_of(device));
  TRY(const CurrentContext current, device.enter());
  TRY(const auto problem, Problem::make(*lt, call, symbols, kUsualAlignments));
  TRY(const auto results, problem->heuristics(kLibraryWorkspaceBytes));
  std::vector<LibraryAlgorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : results)
    algorithms.push_back({to_hex(result.algo), static_cast<int64_t>(result.workspaceSize),
                          static_cast<double>(result.wavesCount)});
  return algorithms;
}

namespace {

// While it lives, this thread may do what a capture forbids: the library loads its kernels when they
// are first launched, which is nothing of the work that is captured.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { exchange(); }

 private:
  void exchange() {
    if (driver_.cuThreadExchangeStreamCaptureMode != nullptr)
      static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&mode_));
  }
  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

struct LoadedLibraryCall::Impl {
  std::shared_ptr<const CudaDevice> device;
  const CublasLt* lt = nullptr;
  LibraryCall call;

  bool has_symbols = false;               // constant after load()
  std::optional<int64_t> workspace = {};  // likewise

  using Key = std::pair<std::vector<int64_t>, Alignments>;  // symbols
  std::mutex mu;  // guards `problems`, and their descriptions while a launch sets its pointers
  std::map<Key, std::unique_ptr<Problem>> problems;

  Result<const Problem*> at(std::span<const int64_t> dims, const Alignments& alignments,
                            int64_t workspace_bytes) {
    Key key{{dims.begin(), dims.end()}, alignments};
    if (const auto found = problems.find(key); found != problems.end()) return found->second.get();
    TRY(auto problem, Problem::make(*lt, call, dims, alignments));
    const bool exactly = !has_symbols && alignments == kUsualAlignments;
    TRY_STATUS(problem->choose(workspace_bytes, exactly));
    // The usual one of constant sizes was chosen at the start and stays.
    if (problems.size() == kMostProblems) problems.erase(problems.begin());
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
  impl->has_symbols = !std::ranges::all_of(sizes, &Dim::is_constant);
  if (!impl->has_symbols) {
    TRY(const CurrentContext current, impl->device->enter());
    TRY(const Problem* usual, impl->at({}, kUsualAlignments, kLibraryWorkspaceBytes));
    impl->workspace = usual->workspace_bytes();
  }
  return std::unique_ptr<const LoadedLibraryCall>(new LoadedLibraryCall(std::move(impl)));
}

std::optional<int64_t> LoadedLibraryCall::workspace_bytes() const {
  return impl_->workspace;
}

Status LoadedLibraryCall::launch(std::span<const DevicePtr> args, DevicePtr workspace,
                                 int64_t workspace_bytes, std::span<const int64_t> dims,
                                 Stream stream) const {
  TRY(const CurrentContext current, impl_->device->enter());
  const std::lock_guard lock(impl_->mu);
  if (!impl_->has_symbols) dims = {};
  for (const Dim* size : {&impl_->call.m, &impl_->call.n, &impl_->call.batch}) {
    TRY(const int64_t elements, size->evaluate(dims));
    if (elements == 0) return {};  // a result without elements
  }
  TRY(const Alignments alignments, alignments_of(impl_->call, args, dims));
  TRY(const Problem* problem, impl_->at(dims, alignments, workspace_bytes));
  const RelaxedCapture relaxed(impl_->device->impl().driver);
  return problem->launch(args, workspace, workspace_bytes, stream);
}

}  // namespace kiln
