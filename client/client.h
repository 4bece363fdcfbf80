// Client: the library a program links to get tuned kernels. Thread-safe. Local disk tier first,
// then the coordinator, then, when that is away, a `default` compile on this machine. (A search
// that the coordinator has no worker for is refused; see CompileOptions::mode.) Programs for a GPU
// are launched on the caller's stream and device memory, in the GPU's primary context.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/program/program.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

struct ClientOptions {
  std::string coordinator;  // "tcp://127.0.0.1:7557"; empty: no service, local only
  std::string key_file;     // what `kiln keys new` wrote, for a coordinator that takes keys
  std::string cache_dir;    // local disk tier; empty: none
  int64_t cache_bytes = int64_t{10} << 30;  // of it; what was not used for the longest goes; 0: any
  // The Ed25519 public key, 64 hex digits, that every program must be signed with; empty: the one
  // in the key file; without one, whichever the coordinator says it has.
  std::string signing_key{};
  std::chrono::milliseconds connect_timeout{2000};
  bool allow_fallback = true;  // compile locally when the service is away
  std::string compiler;        // of the fallback; empty: the first of g++, c++, clang++ on PATH
  int threads = 0;             // of the launch pool; 0: every core we may use
  std::string libcuda;         // the NVIDIA driver; empty: libcuda.so.1
  std::string libnvrtc;        // NVRTC, of the fallback; empty: the usual places
  // Open the GPU at once, in the background, instead of when it is first needed.
  bool open_gpu = false;
};

enum class ServiceState : uint8_t { kUnknown, kReachable, kAway };  // kAway: circuit breaker open

struct CompileProgress {
  int kernels = 0, kernels_done = 0, candidates = 0, candidates_done = 0;
  double elapsed_s = 0;
};

struct CompileOptions {
  // Default: this machine's CPU. What follows from this machine's CPU or GPU need not be said: a
  // backend alone means the one here. kUnsupported or kNotFound when that is a GPU and there is
  // none.
  Target target;
  // kMaxAutotune: kUnavailable, with the targets there are, when the service has no worker for this
  // one; kDefault needs no search, so then it is compiled here.
  Mode mode = Mode::kDefault;
  std::chrono::milliseconds deadline{600'000};              // kDeadlineExceeded after it
  bool check_only = false;                                  // kNotFound on a miss, start nothing
  std::function<void(const CompileProgress&)> on_progress;  // from the calling thread
  // Make the program ready to run on this machine. False: only get it, which any machine can.
  // kUnsupported when the target is a GPU that is not here, kOverloaded when it has no room.
  bool load = true;
  // On a GPU: launches are captured into a CUDA graph and replayed. Same programs, same results.
  bool reduce_overhead = false;

  // Of compile_specialised(): by symbol of the graph, the sizes to tune at; fewer lists, or empty
  // ones, leave the exported hint.
  std::vector<std::vector<int64_t>> hints;
  std::function<void(const std::string&)> on_message;  // what a person may want to know
  // A directory that `kiln compile --out` wrote: the program is taken from there, or it fails;
  // nobody is asked. Its mode and target are what they are. Errors: exported_directory.h, and
  // kInvalidArgument when it is another graph's.
  Path exported;
  // Nobody waits for it to run: those who do are served first.
  bool warm_up = false;
};

// Where the time of one compile() went.
struct StartUp {
  double context_ms = 0;       // opening the GPU, in the background when it was begun ahead
  double context_wait_ms = 0;  // of it, what this call waited for
  double fetch_ms = 0;         // from graph to binaries: normalise, look up, fetch or compile
  double load_ms = 0;
};

// A program, bound to the order of inputs of the graph it was compiled for. Loaded unless
// CompileOptions said otherwise: then run() and launch() answer kUnsupported. Where the graph has
// symbols it serves every size in their ranges, of each call what its inputs have.
class CompiledProgram {
 public:
  ~CompiledProgram();
  const Program& program() const;
  std::span<const Artifact> artifacts() const;  // one per program().kernels
  // The bytes that signature() is over; program() is what stands in them.
  std::string manifest() const;
  // The coordinator's, in the form of base/signature.h; empty of what was compiled here.
  std::string signature() const;
  std::string_view outcome() const;  // "tuned", "joined", "hit" or "local"
  // The service has it in memory only, as CompileReply says why: it may be tuned again later.
  bool memory_only() const;
  double seconds() const;  // the compile() call
  // The manifest's input i is the caller's input_order()[i].
  std::span<const int> input_order() const;
  const StartUp& start_up() const;
  // The GPU it is loaded on; null on the CPU.
  std::shared_ptr<const CudaDevice> device() const;

  // The values of program().symbols for inputs of these sizes, in the graph's order.
  // kInvalidArgument names the input and axis that the program does not serve.
  Result<std::vector<int64_t>> bind(std::span<const std::span<const int64_t>> input_sizes) const;
  Result<std::vector<int64_t>> bind(std::span<const Tensor* const> inputs) const;

  // Caller's inputs in the graph's order, and outputs in order: dense row-major, 64-byte aligned,
  // in the host's memory. kInvalidArgument when a count, dtype or size is wrong; on a GPU also
  // kUnavailable, with the driver's words. One call at a time per object. On a GPU it copies there
  // and back: programs that keep their tensors there use launch().
  Status run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const;
  // Allocates the outputs.
  Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs) const;
  // Tensors of the outputs' dtypes and sizes. `symbols`: as bind() tells.
  Result<std::vector<Tensor>> make_outputs(std::span<const int64_t> symbols = {}) const;

  // On the GPU's memory, same order: dense row-major, 16-byte aligned, of the program's dtypes and
  // sizes, which cannot be checked; `symbols` as bind() tells. Puts the work on `stream` and
  // returns; null is the default stream. Launches of one object share its arena, so their streams
  // must order them. One call at a time per object. Memory for sizes larger than any before is
  // allocated here, never while the stream is captured. kInvalidArgument: a count, a null or badly
  // aligned pointer; kUnavailable: the driver refuses, with its words; kUnsupported: not loaded on
  // a GPU.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                CudaStream stream, std::span<const int64_t> symbols = {}) const;

 private:
  friend class Client;
  struct Impl;
  explicit CompiledProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SpecialisedProgram;

class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();

  Result<std::unique_ptr<CompiledProgram>> compile(const Graph& graph,
                                                   const CompileOptions& options);
  // Reads a `.pt2` or text file first.
  Result<std::unique_ptr<CompiledProgram>> compile_file(const Path& file,
                                                        const CompileOptions& options);
  // Programs for parts of the sizes, side by side: see specialised_program.h. The client outlives
  // what it returns.
  Result<std::unique_ptr<SpecialisedProgram>> compile_specialised(const Graph& graph,
                                                                  const CompileOptions& options);
  // Has the service tune it though nobody waits: returns as soon as the service has it on disk,
  // whatever becomes of service or client then. "queued", or "hit" when there is nothing to do. By
  // program, in the order of the parts that `options.hints` make. kUnavailable without a service,
  // or when it has no worker for the target.
  struct Queued {
    Digest graph;
    Target target;
    std::string_view outcome;
  };
  Result<std::vector<Queued>> queue(const Graph& graph, const CompileOptions& options);
  ServiceState service_state() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
