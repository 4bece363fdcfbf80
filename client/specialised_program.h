// SpecialisedProgram: one graph with dynamic dimensions, compiled several times, each for a part of
// the sizes it serves and tuned at a size of that part. At a call, guards on the sizes choose the
// program that runs: a few comparisons. A size covered by the graph but by no part triggers one
// compile for the whole range, reported through `on_message`. Owns its programs. One call at a
// time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "compiler_core/ir/graph.h"
#include "compiler_core/program/guard.h"

namespace kiln {

class SizeBinder;

// Whether all symbols are in these ranges. A few nanoseconds: it decides at every call.
inline bool serves(std::span<const Symbol> sizes, std::span<const int64_t> symbols) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (symbols[i] < sizes[i].range.min || symbols[i] > sizes[i].range.max) return false;
  return true;
}

class SpecialisedProgram {
 public:
  // Gets the program of one part, as Client::compile, fetch or look_up do. It is called again when
  // a size comes that no part serves, so what it refers to outlives the SpecialisedProgram.
  using Compile = std::function<Result<std::unique_ptr<CompiledProgram>>(const Graph&)>;
  using OnMessage = std::function<void(const std::string&)>;

  struct Part {
    std::vector<Guard> guards;  // over the graph's symbols; say what `sizes` says, for people
    std::vector<Symbol> sizes;  // ranges and what they were tuned at, by symbol
    std::unique_ptr<CompiledProgram> program;
  };

  // Compiles `parts`, which need not cover the graph's ranges; the first whose guards hold serves a
  // size. kInvalidArgument: a part does not fit the graph, or a symbol is no size of an input.
  // Other errors are those of `compile`.
  static Result<std::unique_ptr<SpecialisedProgram>> make(Graph graph,
                                                          std::vector<std::vector<Symbol>> parts,
                                                          Compile compile,
                                                          OnMessage on_message = {});
  ~SpecialisedProgram();

  std::span<const Part> parts() const { return parts_; }
  const Graph& graph() const { return graph_; }

  // Sets `symbols` to the values of the graph's symbols. kInvalidArgument names the input and axis
  // that is wrong, and the range it is outside of.
  Status bind(std::span<const std::span<const int64_t>> input_sizes,
              std::vector<int64_t>& symbols) const;
  // The part that serves these; null when none does. REQUIRES: a value for each symbol.
  const Part* find(std::span<const int64_t> symbols) const;
  // The program that serves these, compiled now if need be. Errors as make().
  Result<const CompiledProgram*> program_for(std::span<const int64_t> symbols);

  // CompiledProgram's run() and launch(), with the program for the inputs' sizes.
  Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs);
  Status launch(std::span<const DevicePtr> inputs,
                std::span<const std::span<const int64_t>> input_sizes,
                std::span<const DevicePtr> outputs, CudaStream stream);

 private:
  SpecialisedProgram(Graph graph, Compile compile, OnMessage on_message);
  Status add(std::vector<Symbol> sizes);

  const Graph graph_;
  const Compile compile_;
  const OnMessage on_message_;
  std::unique_ptr<const SizeBinder> binder_;
  std::vector<Part> parts_;
  std::vector<int64_t> symbols_;  // of the last call
};

// The parts that hints make: each symbol's range is divided between its hints, and every range of
// one symbol is combined with every range of the others. `hints` has a list for each symbol; a list
// that is empty or missing leaves the size it was exported with. kInvalidArgument: a hint outside
// its range, more than kMaxParts.
inline constexpr size_t kMaxParts = 64;
Result<std::vector<std::vector<Symbol>>> parts_of_hints(
    std::span<const Symbol> symbols, std::span<const std::vector<int64_t>> hints);

}  // namespace kiln
