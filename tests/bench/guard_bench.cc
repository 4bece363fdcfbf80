// What a call of varying size pays before anything is launched: nanoseconds to bind the symbols of
// a program of INPUTS inputs and to find, by its guards, the part of the sizes that serves it. The
// worst case: the last of PARTS parts.
//
//   guard_bench [--json]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "client/specialised_program.h"
#include "compiler_core/program/artifact.h"
#include "compiler_core/runtime/size_binder.h"

namespace {

using kiln::Dim;

constexpr int kCalls = 200'000;

struct Case {
  int inputs, parts;
};

// Inputs [s0, s1, 64], parts cut along s0.
double ns_of_a_call(const Case& wanted) {
  const kiln::TensorSpec spec{kiln::DType::kF32, {Dim::symbol(0), Dim::symbol(1), 64}};
  const std::vector<const kiln::TensorSpec*> specs(static_cast<size_t>(wanted.inputs), &spec);
  const std::vector<kiln::ProgramSymbol> symbols = {{1, 4096, 31}, {1, 4096, 12}};
  const auto binder = kiln::SizeBinder::make(specs, symbols);
  if (!binder) return -1;
  std::vector<std::vector<kiln::Symbol>> parts;
  for (int i = 0; i < wanted.parts; ++i)
    parts.push_back(
        {{{1 + i * 4096 / wanted.parts, (i + 1) * 4096 / wanted.parts}, 0}, {{1, 4096}, 0}});
  const std::vector<int64_t> sizes = {4096, 100, 64};
  const std::vector<std::span<const int64_t>> given(specs.size(), sizes);
  std::vector<int64_t> bound;
  size_t found = 0;
  const auto started = std::chrono::steady_clock::now();
  for (int call = 0; call < kCalls; ++call) {
    if (!binder->bind(given, bound)) return -1;
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& sizes_of_part) {
      return kiln::serves(sizes_of_part, bound);
    });
    found += static_cast<size_t>(part - parts.begin());
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - started;
  if (found != static_cast<size_t>(wanted.parts - 1) * kCalls) return -1;
  return spent.count() / kCalls;
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  for (const Case& wanted : {Case{1, 1}, Case{3, 3}, Case{20, 3}, Case{3, 16}}) {
    const double ns = ns_of_a_call(wanted);
    fmt::print(fmt::runtime(json ? "{{\"inputs\":{},\"parts\":{},\"ns\":{:.1f}}}\n"
                                 : "{:>3} inputs, {:>2} parts: {:.0f} ns a call\n"),
               wanted.inputs, wanted.parts, ns);
    if (ns < 0) return 1;
  }
  return 0;
}
