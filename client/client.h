// Client: the library that a program links to get tuned kernels. A program is looked for in this
// process, in a directory on this machine (ClientOptions::cache_dir), and at the coordinator, which
// tunes what nobody has. When no service answers, it is compiled here with the cost model's first
// choice (ClientOptions::allow_fallback).
//
//   auto client = kiln::Client::create({.coordinator = "tcp://127.0.0.1:7557"});
//   auto program = (*client)->compile_file("model.pt2", {.mode = kiln::Mode::kMaxAutotune});
//   auto outputs = (*program)->run(inputs);
//
// Nothing throws: a call that can fail answers a Result, whose Code says what to do next.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/program/target.h"

// The version of the library that these headers belong to.
#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0

namespace kiln {

class CudaDevice;
class Device;
class Graph;      // compiler_core/ir/graph.h; ir/builder.h and frontend/exported_program.h make one
struct Artifact;  // compiler_core/program/artifact.h
struct LaunchTime;
struct Program;  // compiler_core/program/program.h
struct Span;     // schema/tracing/span.h, which is Kiln's own

using DevicePtr = uint64_t;  // CUdeviceptr
using CudaStream = void*;    // CUstream; null is the default stream

struct ClientOptions {
  // "tcp://127.0.0.1:7557"; several coordinators of one store with commas between; empty: no
  // service, local only.
  std::string coordinator{};
  std::string key_file{};   // what `kiln keys new` wrote, for a coordinator that takes keys
  std::string cache_dir{};  // keeps programs on this machine; empty: none
  // Bound of cache_dir: the programs that were used longest ago are removed. 0: no bound.
  int64_t cache_bytes = int64_t{10} << 30;
  // A program that came to cache_dir longer ago is asked for again, so that a machine that is seldom
  // connected runs nothing that was taken back long ago; 0: any age will do.
  std::chrono::seconds max_age{0};
  // The Ed25519 public key, 64 hex digits, that every program must be signed with. Empty: the one
  // in the key file; without a key file, whichever the coordinator presents.
  std::string signing_key{};
  std::chrono::milliseconds connect_timeout{2000};
  bool allow_fallback = true;  // compile here when the service is away
  std::string compiler{};      // of the fallback; empty: the first of g++, c++, clang++ on PATH
  int threads = 0;             // of the launch pool; 0: every core this process may use
  std::string libcuda{};       // the NVIDIA driver; empty: libcuda.so.1
  std::string libnvrtc{};      // NVRTC, for the fallback; empty: the usual places
  // cuBLASLt, for kernels that call it: its file, or the folder of a CUDA toolkit or Python
  // environment; empty: the usual places; "none": no library is called. Where it is missing, or of
  // another version than a kernel was tuned with, Kiln's own kernel beside it runs.
  std::string libcublaslt{};
  int gpu = 0;  // the GPU that programs run on, as the driver counts those of this process
  bool open_gpu = false;  // open the GPU now, in the background, not when first needed
  // Reads the bytes at each URL, side by side: a service that hands out links (--blob-links) then sends
  // the client to its object store for binaries, and sends itself what cannot be had there. They are
  // checked like all others. Empty: the service sends them all.
  std::function<std::vector<Result<std::string>>(const std::vector<std::string>& urls,
                                                 std::chrono::milliseconds timeout)>
      read_links{};
};

// kAway: the service failed a moment ago, and calls do not wait for it again yet.
enum class ServiceState : uint8_t { kUnknown, kReachable, kAway };

struct CompileProgress {
  int kernels = 0, kernels_done = 0, candidates = 0, candidates_done = 0;
  double elapsed_s = 0;
  std::string waiting{};  // what a worker waits for, for people; empty: nothing
};

struct CompileOptions {
  // A backend alone means the CPU or GPU of this machine; device model, core count and toolkit are
  // filled in from this machine where they are left empty.
  Target target{};
  // kDefault: the cost model's first choice, answered as soon as it is compiled: the service compares
  // it with a reference behind the answer (CompiledProgram::verified). kMaxAutotune: search and
  // measure.
  Mode mode = Mode::kDefault;
  std::chrono::milliseconds deadline{600'000};  // for the whole call
  // On a GPU: capture the launches into a CUDA graph and replay it. Same program, same results.
  bool reduce_overhead = false;
  // Scratch memory is allocated by the first launch() without an arena, or run(), not now.
  bool lazy_memory = false;
  // Nobody waits for the program: the service serves requests that somebody waits for first.
  bool background = false;
  // Takes no program that kernel templates of another version made, and waits for its successor
  // instead. Otherwise such a program is answered at once (Outcome::kStale), and replaced in the
  // cache when the service has tuned it again.
  bool strict = false;
  // kMaxAutotune: where the program is not tuned yet, takes what there is at once (Outcome::kTier0),
  // and leaves the tuning to the service. TieredProgram (tiered_program.h) puts the tuned program in
  // its place when that is there. In kDefault mode nothing is awaited anyway.
  bool now = false;
  // Fails with kUnavailable where no service answers, as ClientOptions::allow_fallback does for all.
  bool no_fallback = false;
  // Waits until the results of every kernel of a kDefault program, or of tier 0, are compared. Where no service
  // answers, the program is compiled here all the same, and not verified.
  bool verify = false;
  std::function<void(const CompileProgress&)> on_progress{};  // called on the calling thread
  std::function<void(const std::string&)> on_message{};       // a sentence for a person
  // Asked every kCancelPoll while the call waits for the service, on the calling thread; true ends
  // the call with kDeadlineExceeded.
  std::function<bool()> is_cancelled{};
  static constexpr std::chrono::milliseconds kCancelPoll{100};
  // The caller's span, as W3C Trace Context's `traceparent`: what the service does for the call is
  // traced below it, where the service sends traces. Empty: the call has no trace.
  std::string traceparent{};
  // For `kiln`: hears the call's own spans as they end, on the calling thread.
  std::function<void(const Span& span)> on_span{};
};

// How a program was got. kTuned: for this call. kJoined: tuned for another client that asked
// earlier. kHit: a cache had it. kLocal: compiled on this machine, in default mode whatever was
// asked for. kQueued: only submit() answers this. kStale: a cache had it, and kernel templates of
// another version made it: right, but the service tunes its successor. kTier0: the kDefault program
// of the same graph, whatever was had of it, while the service tunes the one that was asked for.
enum class Outcome : uint8_t { kTuned, kJoined, kHit, kLocal, kQueued, kStale, kTier0 };
// "tuned", "joined", "hit", "local", "queued", "stale", "tier0".
std::string_view to_string(Outcome outcome);

// Where the time of one call to compile() went.
struct StartUp {
  double context_ms = 0;       // opening the GPU, in the background when it was begun ahead
  double context_wait_ms = 0;  // the part of it that this call waited for
  double fetch_ms = 0;         // from graph to binaries: normalise, look up, fetch or compile
  double load_ms = 0;
};

// A program, bound to the input order of the graph it was compiled for. If the graph has dynamic
// dimensions, each call may use any sizes within their ranges; sizes are taken from the inputs.
// Owns its code and its scratch memory; may outlive its Client. One call of run() or launch() at a
// time per object, but for launch() with an arena; everything else may be called from any thread.
class CompiledProgram {
 public:
  ~CompiledProgram();
  const Program& program() const;               // the manifest: kernels, launches, buffers, guards
  std::span<const Artifact> artifacts() const;  // the binary of each of program().kernels
  std::string manifest() const;                 // the bytes that signature() signs
  // "ed25519 SIGNER SIGNATURE", in hex: the coordinator's; empty for a program compiled here.
  std::string signature() const;
  Outcome outcome() const;
  // The service could not store the program, or has not tried every alternative yet: it may be
  // tuned again later.
  bool memory_only() const;
  // The results of every kernel were compared with a reference. False: it was compiled here, or
  // answered when it was compiled. One that the service finds wrong is taken back: run() and launch()
  // are kUnavailable once this client has heard of it, and compile() gets the next choice.
  bool verified() const;
  double seconds() const;  // the call that got it
  const StartUp& start_up() const;
  // The manifest's input i is the caller's input input_order()[i].
  std::span<const int> input_order() const;

  // The values of program().symbols for inputs of these sizes, in the graph's order.
  // kInvalidArgument names the input and axis that the program does not serve.
  Result<std::vector<int64_t>> bind(std::span<const std::span<const int64_t>> input_sizes) const;
  Result<std::vector<int64_t>> bind(std::span<const Tensor* const> inputs) const;

  // Runs on tensors in the host's memory: inputs in the graph's order, then outputs, each dense
  // row-major and 64-byte aligned. On a GPU this copies both ways and waits; programs that keep
  // their tensors there use launch(). kInvalidArgument: a count, dtype or size is wrong;
  // kUnsupported: not loaded (fetch() and look_up() do not load); kUnavailable: the driver refuses.
  Status run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const;
  // The same; allocates the outputs.
  Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs) const;
  // Zeroed tensors of the outputs' dtypes and sizes; `symbols` as bind() gives them.
  // kInvalidArgument: a symbol is missing, or a size overflows.
  Result<std::vector<Tensor>> make_outputs(std::span<const int64_t> symbols = {}) const;

  // Puts the work on `stream` and returns. Pointers are to the GPU's memory in the same order:
  // dense row-major, 16-byte aligned, of the program's dtypes and sizes, which cannot be checked;
  // `symbols` as bind() gives them. Launches of one object share its scratch memory, so their
  // streams must order them. Memory for sizes larger than any before is allocated here, but never
  // while the stream is captured. kInvalidArgument: a count, or a null or misaligned pointer;
  // kUnsupported: not loaded on a GPU; kUnavailable: the driver refuses, with its message.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                CudaStream stream, std::span<const int64_t> symbols = {}) const;

  // The same, with memory of the caller's for what lies between inputs and outputs: `arena_bytes`
  // for these sizes, kArenaAlignment aligned, on the device, the launch's own until the stream has
  // passed it. Re-entrant: any number of threads and streams. Also for a program that is loaded on
  // the CPU: pointers are the host's, `alignment()` aligned, and the work is done on return.
  Result<int64_t> arena_bytes(std::span<const int64_t> symbols = {}) const;
  int64_t alignment() const;  // of inputs and outputs, in bytes; 0 when it is not loaded
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                DevicePtr arena, CudaStream stream, std::span<const int64_t> symbols) const;
  static constexpr int64_t kArenaAlignment = 256;

 private:
  friend class Client;
  friend std::shared_ptr<const CudaDevice> device_of(const CompiledProgram& program);
  friend std::string libraries_left_out(const CompiledProgram& program);
  friend std::shared_ptr<const Device> place_of(const CompiledProgram& program);
  friend Result<std::string> bundle_of(const CompiledProgram& program);
  friend Result<std::vector<LaunchTime>> profile_launches(const CompiledProgram& program,
                                                          std::span<const DevicePtr> inputs,
                                                          std::span<const DevicePtr> outputs,
                                                          std::span<const int64_t> symbols);
  struct Impl;
  explicit CompiledProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Thread-safe. Opens connections when it first needs them, and the GPU too.
class Client {
 public:
  using Compiled = Result<std::unique_ptr<CompiledProgram>>;

  // Contacts nobody. kInvalidArgument, kNotFound, kPermissionDenied or kCorruption when the key
  // file or signing key is wrong; kUnavailable when cache_dir cannot be made.
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();

  // The program of `graph`, loaded and ready to run here.
  //   kInvalidArgument    the graph, or an option, is wrong
  //   kUnsupported        an operation Kiln does not cover, or a target this machine cannot run
  //   kOverloaded         the service is busy for longer than the deadline, or the GPU has no room
  //   kUnavailable        nobody answers and no fallback is allowed, or the service has no worker
  //                       for the target (the message names the targets it has)
  //   kDeadlineExceeded   the deadline passed
  //   kPermissionDenied   the key may not ask this, or the program is signed by somebody else
  //   kCorruption         the program is not what was signed
  Compiled compile(const Graph& graph, const CompileOptions& options);
  // Reads a `.pt2` archive, or Kiln's text form, first. Also kNotFound and what
  // frontend/exported_program.h says.
  Compiled compile_file(const std::filesystem::path& file, const CompileOptions& options);

  // The same as compile(), but loads nothing: a program for any target, for its binaries.
  Compiled fetch(const Graph& graph, const CompileOptions& options);
  // The same as fetch(), but starts nothing: kNotFound when no cache has the program.
  Compiled look_up(const Graph& graph, const CompileOptions& options);
  // The program of the graph with this digest (`kiln digest`), loaded, for a caller that has no graph:
  // from this process, this machine, a bundle or the service. Nothing is started: kNotFound when nobody
  // has it, as somebody has to send the graph first. `places[i]` says which of the program's inputs the caller's
  // input i is, -1: none; empty: the caller has the program's own, in the order of its manifest.
  // kInvalidArgument: the program's inputs are others.
  Compiled load(const Digest& graph, const CompileOptions& options,
                std::span<const int> places = {});
  // The program that `kiln compile --out` wrote to a directory, or that a bundle has (`kiln bundle`),
  // loaded; asks nobody. The mode of `options` matters only where a bundle has both. kInvalidArgument:
  // the program of another graph, or no signing key is given; kNotFound: no program there;
  // kUnsupported: another target's; kPermissionDenied, kCorruption as compile().
  Compiled open_exported(const Graph& graph, const std::filesystem::path& place,
                         const CompileOptions& options);
  // The same of a directory for a caller that has no graph, with the model's inputs as the directory's
  // signed binding numbers them, up to the last that the program reads, and the directory's target and mode.
  // `signer`: as load_bundle() has it; kUnsigned: the caller vouches for the directory, which is code, and no
  // signature is looked at.
  Compiled open_exported(const std::filesystem::path& directory, const CompileOptions& options,
                         const std::string& signer = {});
  static constexpr char kUnsigned[] = "unsigned";
  // Reads a bundle, the file that `kiln bundle` wrote: from now on compile() and its like answer with
  // its programs before they ask anybody, also for targets that its code's can run. How many it has.
  // `signer`: whose signature is good, a public key in hex or a file with one; empty:
  // ClientOptions::signing_key's. kNotFound: no such file; kInvalidArgument: it is no bundle, or no
  // signer is known; kUnsupported: of a newer format; kPermissionDenied: signed by somebody else;
  // kCorruption: cut short or altered, and nothing of it is used.
  Result<int> load_bundle(const std::filesystem::path& file, const std::string& signer = {});
  // The same of the text of a bundle.
  Result<int> add_bundle(std::string_view text, const std::string& signer = {});

  struct Submission {
    Digest graph;
    Target target;
    Outcome outcome = Outcome::kQueued;  // or kHit: nothing to do
  };
  // Has the service tune the program though nobody waits for it: returns once the request is on the
  // service's disk, and survives its restarts. kUnavailable: no service, or no worker for the
  // target. Other errors as compile().
  Result<Submission> submit(const Graph& graph, const CompileOptions& options);

  ServiceState service_state() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
