// Client: the library a program links to get tuned kernels. Thread-safe. Local disk tier first,
// then the coordinator, then, when that is away, a `default` compile on this machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/program/program.h"

namespace kiln {

struct ClientOptions {
  std::string coordinator;  // "tcp://127.0.0.1:7557"; empty: no service, local only
  std::string cache_dir;    // local disk tier; empty: none
  std::chrono::milliseconds connect_timeout{2000};
  bool allow_fallback = true;  // compile locally when the service is away
  std::string compiler;        // of the fallback; empty: the first of g++, c++, clang++ on PATH
  int threads = 0;             // of the launch pool; 0: every core we may use
};

enum class ServiceState : uint8_t { kUnknown, kReachable, kAway };  // kAway: circuit breaker open

struct CompileProgress {
  int kernels = 0, kernels_done = 0, candidates = 0, candidates_done = 0;
  double elapsed_s = 0;
};

struct CompileOptions {
  Target target;  // default: this machine's CPU
  Mode mode = Mode::kDefault;
  std::chrono::milliseconds deadline{600'000};              // kDeadlineExceeded after it
  bool check_only = false;                                  // kNotFound on a miss, start nothing
  std::function<void(const CompileProgress&)> on_progress;  // from the calling thread
};

// A loaded program, bound to the order of inputs of the graph it was compiled for.
class CompiledProgram {
 public:
  ~CompiledProgram();
  const Program& program() const;
  std::string_view outcome() const;  // "tuned", "joined", "hit" or "local"
  double seconds() const;            // the compile() call

  // Caller's inputs in the graph's order, and outputs in order: dense row-major, 64-byte aligned.
  // kInvalidArgument when a count, dtype or size is wrong. One call at a time per object.
  Status run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const;
  // Allocates the outputs.
  Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs) const;

 private:
  friend class Client;
  struct Impl;
  explicit CompiledProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();

  Result<std::unique_ptr<CompiledProgram>> compile(const Graph& graph,
                                                   const CompileOptions& options);
  // Reads a `.pt2` or text file first.
  Result<std::unique_ptr<CompiledProgram>> compile_file(const Path& file,
                                                        const CompileOptions& options);
  ServiceState service_state() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
