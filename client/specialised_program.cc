#include "client/specialised_program.h"

#include <fmt/format.h>

#include "compiler_core/passes/specialise.h"
#include "compiler_core/runtime/size_binder.h"

namespace kiln {
namespace {

std::vector<Guard> guards_of(std::span<const Symbol> sizes) {
  std::vector<Guard> guards;
  for (size_t i = 0; i < sizes.size(); ++i)
    guards.push_back(
        {Dim::symbol(static_cast<SymbolId>(i)), sizes[i].range.min, sizes[i].range.max});
  return guards;
}

// "s0 = 7, s1 = 12"
std::string describe(std::span<const int64_t> symbols) {
  std::string text;
  for (size_t i = 0; i < symbols.size(); ++i)
    text += fmt::format("{}s{} = {}", i > 0 ? ", " : "", i, symbols[i]);
  return text;
}

Result<SizeBinder> binder_of(const Graph& graph) {
  std::vector<TensorSpec> specs;
  for (NodeId id : graph.inputs()) specs.push_back({graph.node(id).dtype, graph.node(id).shape});
  std::vector<const TensorSpec*> inputs;
  for (const TensorSpec& spec : specs) inputs.push_back(&spec);
  std::vector<ProgramSymbol> symbols;
  for (const Symbol& symbol : graph.symbols())
    symbols.push_back({symbol.range.min, symbol.range.max, symbol.hint});
  return SizeBinder::make(inputs, symbols);
}

}  // namespace

SpecialisedProgram::SpecialisedProgram(Graph graph, Compile compile, OnMessage on_message)
    : graph_(std::move(graph)), compile_(std::move(compile)), on_message_(std::move(on_message)) {}
SpecialisedProgram::~SpecialisedProgram() = default;

Result<std::unique_ptr<SpecialisedProgram>> SpecialisedProgram::make(
    Graph graph, std::vector<std::vector<Symbol>> parts, Compile compile, OnMessage on_message) {
  std::unique_ptr<SpecialisedProgram> made(
      new SpecialisedProgram(std::move(graph), std::move(compile), std::move(on_message)));
  TRY(SizeBinder binder, binder_of(made->graph_));
  made->binder_ = std::make_unique<const SizeBinder>(std::move(binder));
  for (std::vector<Symbol>& sizes : parts) TRY_STATUS(made->add(std::move(sizes)));
  return made;
}

Status SpecialisedProgram::bind(std::span<const std::span<const int64_t>> input_sizes,
                                std::vector<int64_t>& symbols) const {
  return binder_->bind(input_sizes, symbols);
}

Status SpecialisedProgram::add(std::vector<Symbol> sizes) {
  TRY(const Graph narrowed, specialise(graph_, sizes));
  Part part;
  TRY(part.program, compile_(narrowed));
  part.guards = guards_of(sizes);
  part.sizes = std::move(sizes);
  parts_.push_back(std::move(part));
  return {};
}

const SpecialisedProgram::Part* SpecialisedProgram::find(std::span<const int64_t> symbols) const {
  for (const Part& part : parts_)
    if (serves(part.sizes, symbols)) return &part;
  return nullptr;
}

Result<const CompiledProgram*> SpecialisedProgram::program_for(std::span<const int64_t> symbols) {
  if (const Part* part = find(symbols)) return part->program.get();
  if (on_message_)
    on_message_(fmt::format("no specialisation serves {}: compiling one for every size",
                            describe(symbols)));
  const auto all = graph_.symbols();
  TRY_STATUS(add({all.begin(), all.end()}));
  if (const Part* part = find(symbols)) return part->program.get();
  return fail(Code::kInvalidArgument,
              fmt::format("{} is outside the sizes of the graph", describe(symbols)));
}

Result<std::vector<Tensor>> SpecialisedProgram::run(std::span<const Tensor* const> inputs) {
  std::vector<std::span<const int64_t>> sizes;
  for (const Tensor* input : inputs) sizes.emplace_back(input->sizes());
  TRY_STATUS(bind(sizes, symbols_));
  TRY(const CompiledProgram* program, program_for(symbols_));
  return program->run(inputs);
}

Status SpecialisedProgram::launch(std::span<const DevicePtr> inputs,
                                  std::span<const std::span<const int64_t>> input_sizes,
                                  std::span<const DevicePtr> outputs, CudaStream stream) {
  TRY_STATUS(bind(input_sizes, symbols_));
  TRY(const CompiledProgram* program, program_for(symbols_));
  TRY(const std::vector<int64_t> own, program->bind(input_sizes));
  return program->launch(inputs, outputs, stream, own);
}

Result<std::vector<std::vector<Symbol>>> parts_of_hints(
    std::span<const Symbol> symbols, std::span<const std::vector<int64_t>> hints) {
  if (hints.size() > symbols.size())
    return fail(Code::kInvalidArgument, fmt::format("hints for {} symbols; the graph has {}",
                                                    hints.size(), symbols.size()));
  std::vector<std::vector<Symbol>> parts = {{}};
  for (size_t i = 0; i < symbols.size(); ++i) {
    auto ranges = cut_range(symbols[i], i < hints.size() ? hints[i] : std::vector<int64_t>());
    if (!ranges) return fail(ranges.error().within(fmt::format("s{}", i)));
    std::vector<std::vector<Symbol>> longer;
    for (const std::vector<Symbol>& part : parts)
      for (const Symbol& range : *ranges) {
        longer.push_back(part);
        longer.back().push_back(range);
      }
    parts = std::move(longer);
    if (parts.size() > kMaxParts)
      return fail(Code::kInvalidArgument,
                  fmt::format("the hints make more than {} programs; give fewer", kMaxParts));
  }
  return parts;
}

}  // namespace kiln
