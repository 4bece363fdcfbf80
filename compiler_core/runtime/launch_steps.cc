#include <algorithm>
#include <span>

#include "compiler_core/runtime/call_sizes.h"

namespace kiln {
namespace {

class Steps {
 public:
  Steps(const Program& program, const CallSizes& sizes, size_t most)
      : program_(program), sizes_(sizes), most_(most) {}

  std::vector<LaunchStep> cut() const {
    std::vector<LaunchStep> steps;
    for (size_t i = 0; i < program_.launches.size(); ++i) {
      if (sizes_.launches[i].empty) continue;
      if (!steps.empty() && joins(i, steps.back()))
        steps.back().push_back(i);
      else
        steps.push_back({i});
    }
    return steps;
  }

 private:
  const Recipe& recipe(size_t launch) const {
    return program_.kernels[static_cast<size_t>(program_.launches[launch].kernel)].recipe;
  }

  bool joins(size_t launch, const LaunchStep& step) const {
    return step.size() < most_ && is_shared_out(launch) &&
           std::all_of(step.begin(), step.end(), [&](size_t other) {
             return is_shared_out(other) && !writes_into(launch, other) &&
                    !writes_into(other, launch);
           });
  }

  // In one phase, and nothing that one block is enough for: the calling core is done with that
  // before another has begun.
  bool is_shared_out(size_t launch) const {
    const std::vector<Phase>& phases = recipe(launch).phases;
    if (phases.size() != 1 || !recipe(launch).workspace_bytes.is(0)) return false;
    const Result<int64_t> blocks = phases[0].grid.blocks(sizes_.launches[launch].dims);
    return blocks.has_value() && *blocks > 1;
  }

  // Whether a result of `writer` may lie in what `other` reads or writes.
  bool writes_into(size_t writer, size_t other) const {
    const std::span<const int> args = program_.launches[writer].args;
    const std::span<const int> touched = program_.launches[other].args;
    const auto results = args.subspan(recipe(writer).inputs.size());
    return std::any_of(results.begin(), results.end(), [&](int result) {
      return std::any_of(touched.begin(), touched.end(),
                         [&](int buffer) { return may_overlap(result, buffer); });
    });
  }

  bool may_overlap(int a, int b) const {
    if (a == b) return true;
    const size_t i = static_cast<size_t>(a), k = static_cast<size_t>(b);
    const Buffer::Kind one = program_.buffers[i].kind, other = program_.buffers[k].kind;
    if (one != Buffer::Kind::kTemporary && other != Buffer::Kind::kTemporary) return one != other;
    return one == other && sizes_.offsets[i] < sizes_.offsets[k] + sizes_.bytes[k] &&
           sizes_.offsets[k] < sizes_.offsets[i] + sizes_.bytes[i];
  }

  const Program& program_;
  const CallSizes& sizes_;
  const size_t most_;
};

}  // namespace

std::vector<LaunchStep> steps_of(const Program& program, const CallSizes& sizes, size_t most) {
  return Steps(program, sizes, most).cut();
}

}  // namespace kiln
