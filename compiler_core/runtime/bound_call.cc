#include "compiler_core/runtime/bound_call.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln {

bool BoundCall::is_sized_for(std::span<const int64_t> dims) const {
  return sized_ && std::ranges::equal(dims, sizes_.symbols);
}

Status BoundCall::size_for(std::span<const int64_t> dims) {
  if (is_sized_for(dims)) return {};
  sized_ = false;
  TRY(sizes_, sizes_of_call(program_, dims));
  prepare();
  sized_ = true;
  return {};
}

void BoundCall::prepare() {
  calls_.clear();
  arg_buffers_.clear();
  steps_ = steps_of(program_, sizes_, device_.most_side_by_side());
  for (const LaunchStep& step : steps_)
    for (const size_t launch : step)
      arg_buffers_.insert(arg_buffers_.end(), program_.launches[launch].args.begin(),
                          program_.launches[launch].args.end());
  args_.assign(arg_buffers_.size(), 0);
  std::span<const DevicePtr> rest = args_;
  for (const LaunchStep& step : steps_) {
    for (const size_t i : step) {
      const Launch& launch = program_.launches[i];
      calls_.push_back({kernels_[static_cast<size_t>(launch.kernel)].get(),
                        rest.first(launch.args.size()),
                        sizes_.launches[i].dims,
                        {.behind_all = calls_.empty()}});
      rest = rest.subspan(launch.args.size());
    }
  }
  note_early_reads();
}

void BoundCall::note_early_reads() {
  early_reads_.clear();
  size_t first_arg = 0;
  for (size_t call = 0; call < calls_.size(); first_arg += calls_[call++].args.size()) {
    if (call == 0) continue;
    for (const Phase& phase : calls_[call].kernel->recipe().phases)
      for (const KernelArgument& argument : phase.arguments) {
        if (argument.kind != KernelArgument::Kind::kReady) continue;
        const auto input = static_cast<size_t>(argument.index);
        const auto buffer = static_cast<size_t>(arg_buffers_[first_arg + input]);
        if (program_.buffers[buffer].kind == Buffer::Kind::kInput)
          early_reads_.push_back({call, input, buffer});
      }
  }
}

// A tensor without elements may have no memory.
Status BoundCall::check_pointer(DevicePtr pointer, size_t buffer, std::string_view what) const {
  const DevicePtr alignment = static_cast<DevicePtr>(device_.alignment());
  if (pointer != 0 ? pointer % alignment == 0 : sizes_.bytes[buffer] == 0) return {};
  return fail(Code::kInvalidArgument,
              pointer == 0 ? fmt::format("{} is null", what)
                           : fmt::format("{} is not {}-byte aligned", what, alignment));
}

Status BoundCall::check_pointers(std::span<const DevicePtr> inputs,
                                 std::span<const DevicePtr> outputs) const {
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    if (const Buffer& buffer = program_.buffers[i]; buffer.kind == Buffer::Kind::kInput)
      TRY_STATUS(check_pointer(inputs[static_cast<size_t>(buffer.index)], i, "an input buffer"));
  for (size_t i = 0; i < outputs.size(); ++i)
    TRY_STATUS(check_pointer(outputs[i], static_cast<size_t>(program_.output_buffers[i]),
                             "an output buffer"));
  return {};
}

Status BoundCall::bind(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                       DevicePtr arena) {
  TRY_STATUS(check_pointers(inputs, outputs));
  place_buffers(program_, inputs, outputs, arena, sizes_, pointers_);
  for (size_t i = 0; i < args_.size(); ++i) {
    const DevicePtr pointer = pointers_[static_cast<size_t>(arg_buffers_[i])];
    if (args_[i] != pointer) args_[i] = pointer;
  }
  find_ready(outputs);
  return {};
}

// When the first launch begins, what was on the stream before the program has ended. From there on only
// results of the program change.
void BoundCall::find_ready(std::span<const DevicePtr> outputs) {
  for (const EarlyRead& read : early_reads_) calls_[read.call].order.ready = {};
  for (const EarlyRead& read : early_reads_) {
    const DevicePtr begin = pointers_[read.buffer];
    const DevicePtr end = begin + static_cast<DevicePtr>(sizes_.bytes[read.buffer]);
    bool kept = true;
    for (size_t i = 0; i < outputs.size() && kept; ++i) {
      const auto bytes = sizes_.bytes[static_cast<size_t>(program_.output_buffers[i])];
      kept = end <= outputs[i] || outputs[i] + static_cast<DevicePtr>(bytes) <= begin;
    }
    if (kept) calls_[read.call].order.ready.add(read.input);
  }
}

Status BoundCall::launch(std::span<const DevicePtr> outputs, DevicePtr workspace, Stream stream,
                         const AfterStep& after_step) const {
  TRY_STATUS(copy_kept_inputs(stream));
  std::span<const Device::BoundLaunch> rest = calls_;
  for (const LaunchStep& step : steps_) {
    TRY_STATUS(device_.launch_step(rest.first(step.size()), workspace, stream));
    rest = rest.subspan(step.size());
    if (after_step) TRY_STATUS(after_step());
  }
  return copy_shared_outputs(outputs, stream);
}

// An output that keeps elements of an input begins as that one, unless it is the same memory.
Status BoundCall::copy_kept_inputs(Stream stream) const {
  for (const KeptBuffer& each : kept_) {
    const auto output = static_cast<size_t>(each.output), input = static_cast<size_t>(each.input);
    if (pointers_[output] == pointers_[input] || sizes_.bytes[output] == 0) continue;
    TRY_STATUS(
        device_.copy_on_device(pointers_[output], pointers_[input], sizes_.bytes[output], stream));
  }
  return {};
}

// An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
Status BoundCall::copy_shared_outputs(std::span<const DevicePtr> outputs, Stream stream) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t buffer = static_cast<size_t>(program_.output_buffers[i]);
    if (pointers_[buffer] == outputs[i] || sizes_.bytes[buffer] == 0) continue;
    TRY_STATUS(device_.copy_on_device(outputs[i], pointers_[buffer], sizes_.bytes[buffer], stream));
  }
  return {};
}

}  // namespace kiln
