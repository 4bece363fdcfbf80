// TieredProgram: a program that is there at once and gets better. It begins as whatever the service has
// of a max-autotune program (CompileOptions::now), and becomes the tuned one when that is there: one
// swap, between two calls.
//
//   auto program = kiln::TieredProgram::compile(client, graph, options);
//   for (;;) (*program)->current()->launch(...);
//
// Thread-safe. Owns both programs until its own end, so that no launch in flight loses the code or the
// scratch memory that it runs with. A thread of its own waits for the tuned program, on a connection of
// its own; it ends with the swap.
#pragma once

#include <memory>

#include "client/client.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

class TieredProgram {
 public:
  // kTuned: current() is what there will be. kAwaited: a better one may come. kGivenUp: it will not
  // (error() says why), and current() stays as it is.
  enum class State : uint8_t { kTuned, kAwaited, kGivenUp };

  // As Client::compile() with `now`. The callbacks of `options` are called until this returns, and
  // not for the tuned program.
  static Result<std::unique_ptr<TieredProgram>> compile(std::shared_ptr<Client> client, Graph graph,
                                                        CompileOptions options);
  // Ends the waiting, within about CompileOptions::kCancelPoll.
  ~TieredProgram();

  // The best program so far. Calls that belong together (arena_bytes() and the launch that uses it)
  // keep one and the same. Never waits.
  std::shared_ptr<const CompiledProgram> current() const;
  const std::shared_ptr<const CompiledProgram>& first() const;  // what it began as
  // Whether another program took its place, takes it later, or was to.
  bool has_successor() const;
  State state() const;
  Error error() const;  // REQUIRES: kGivenUp
  // Returns the state as soon as nothing is awaited any more, and after `timeout` at the latest.
  State wait(std::chrono::milliseconds timeout) const;

 private:
  struct Impl;
  explicit TieredProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
