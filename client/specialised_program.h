// SpecialisedProgram: one graph compiled several times, each for a part of the sizes it serves and
// tuned at a size of that part. At a call, guards on the sizes say which of them runs: a few
// comparisons. A size that the graph serves and no part does is said and compiled for, once, as the
// whole range. Owns the programs; the client outlives it. One call at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "client/client.h"
#include "compiler_core/runtime/size_binder.h"

namespace kiln {

// Whether all symbols are in these ranges. A few nanoseconds: it decides at every call.
inline bool serves(std::span<const Symbol> sizes, std::span<const int64_t> symbols) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (symbols[i] < sizes[i].range.min || symbols[i] > sizes[i].range.max) return false;
  return true;
}

class SpecialisedProgram {
 public:
  struct Part {
    std::vector<Guard> guards;  // over the graph's symbols; say what `sizes` says, for people
    std::vector<Symbol> sizes;  // ranges and what they were tuned at, by symbol
    std::unique_ptr<CompiledProgram> program;
  };

  // Compiles `parts`, which need not cover the graph's ranges; the first whose guards hold serves a
  // size. kInvalidArgument: a part is none of the graph, a symbol is no size of an input.
  static Result<std::unique_ptr<SpecialisedProgram>> compile(Client& client, Graph graph,
                                                             std::vector<std::vector<Symbol>> parts,
                                                             CompileOptions options);

  std::span<const Part> parts() const { return parts_; }
  const Graph& graph() const { return graph_; }

  // The values of the graph's symbols. kInvalidArgument names the input and axis that is wrong, and
  // the range it is outside of.
  Status bind(std::span<const std::span<const int64_t>> input_sizes,
              std::vector<int64_t>& symbols) const {
    return binder_.bind(input_sizes, symbols);
  }
  // The part that serves these; null when none does. REQUIRES: a value for each symbol.
  const Part* find(std::span<const int64_t> symbols) const;
  // The same, compiled now if need be. Errors as Client::compile.
  Result<const CompiledProgram*> program_for(std::span<const int64_t> symbols);

  // As CompiledProgram's, with the program for the inputs' sizes.
  Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs);
  Status launch(std::span<const DevicePtr> inputs,
                std::span<const std::span<const int64_t>> input_sizes,
                std::span<const DevicePtr> outputs, CudaStream stream);

 private:
  SpecialisedProgram(Client& client, Graph graph, CompileOptions options)
      : client_(client), graph_(std::move(graph)), options_(std::move(options)) {}
  Status add(std::vector<Symbol> sizes);

  Client& client_;
  const Graph graph_;
  const CompileOptions options_;
  SizeBinder binder_;
  std::vector<Part> parts_;
  std::vector<int64_t> symbols_;  // of the last call
};

// The parts that hints make: each symbol's range cut between its hints, every range of one with
// every range of the others. kInvalidArgument: a hint outside its range, more than kMaxParts.
inline constexpr size_t kMaxParts = 64;
Result<std::vector<std::vector<Symbol>>> parts_of_hints(
    std::span<const Symbol> symbols, std::span<const std::vector<int64_t>> hints);

}  // namespace kiln
