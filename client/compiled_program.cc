#include "client/compiled_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "client/bundle.h"
#include "compiler_core/runtime/cuda_device.h"
#include "compiler_core/runtime/library_call.h"

namespace kiln {
namespace {

std::string describe(DType dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(sizes, ","));
}

// Whether `tensor` is what a buffer of the program holds.
Status check_tensor(const Tensor& tensor, const TensorSpec& spec, std::span<const int64_t> symbols,
                    std::string_view what, size_t index) {
  std::vector<int64_t> expected;
  for (const Dim& dim : spec.shape) {
    TRY(const int64_t size, dim.evaluate(symbols));
    expected.push_back(size);
  }
  if (tensor.dtype() == spec.dtype && tensor.sizes() == expected) return {};
  return fail(Code::kInvalidArgument, fmt::format("{} {} is {} but the program takes {}", what,
                                                  index, describe(tensor.dtype(), tensor.sizes()),
                                                  describe(spec.dtype, expected)));
}

Status check_counts(const Program& program, int caller_inputs, size_t inputs, size_t outputs) {
  if (inputs != static_cast<size_t>(caller_inputs))
    return fail(Code::kInvalidArgument,
                fmt::format("the program takes {} inputs, {} were given", caller_inputs, inputs));
  if (outputs != program.output_buffers.size())
    return fail(Code::kInvalidArgument, fmt::format("the program has {} outputs, {} were given",
                                                    program.output_buffers.size(), outputs));
  return {};
}

tl::unexpected<Error> not_loaded() {
  return fail(Code::kUnsupported,
              "the program is not loaded where this call runs it: get it with compile(), for the "
              "CPU or GPU here");
}

}  // namespace

Result<SizeBinder> caller_binder(const Program& program, std::span<const int> input_order,
                                 size_t caller_inputs) {
  std::vector<const TensorSpec*> inputs(caller_inputs, nullptr);
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == Buffer::Kind::kInput) {
      const int caller = input_order[static_cast<size_t>(buffer.index)];
      inputs[static_cast<size_t>(caller)] = &buffer.spec;
    }
  return SizeBinder::make(inputs, program.symbols);
}

Result<std::vector<int>> input_order_of(std::span<const int> places, const Program& program) {
  const auto inputs = std::ranges::count(program.buffers, Buffer::Kind::kInput, &Buffer::kind);
  std::vector<int> order(static_cast<size_t>(inputs), -1);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) continue;
    const auto place = static_cast<size_t>(places[i]);
    if (place >= order.size() || order[place] >= 0)
      return fail(
          Code::kInvalidArgument,
          fmt::format("the program has {} inputs, and input {} is not one of its own", inputs, i));
    order[place] = static_cast<int>(i);
  }
  if (places.empty()) std::iota(order.begin(), order.end(), 0);
  if (std::ranges::find(order, -1) == order.end()) return order;
  return fail(Code::kInvalidArgument,
              fmt::format("the program has {} inputs, and not all are given", inputs));
}

Result<std::vector<DevicePtr>> CompiledProgram::Impl::canonical(std::span<const DevicePtr> inputs,
                                                                size_t outputs) const {
  TRY_STATUS(check_counts(files->program, caller_inputs, inputs.size(), outputs));
  std::vector<DevicePtr> pointers;
  pointers.reserve(input_order.size());
  for (const int caller : input_order) pointers.push_back(inputs[static_cast<size_t>(caller)]);
  return pointers;
}

Status CompiledProgram::Impl::check_not_revoked() const {
  if (!revocations) return {};
  const uint64_t serial = revocations->serial();
  if (serial == checked_serial) return {};
  TRY_STATUS(revocations->check(files->program));
  checked_serial = serial;
  return {};
}

CompiledProgram::CompiledProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledProgram::~CompiledProgram() = default;
const Program& CompiledProgram::program() const {
  return impl_->files->program;
}
std::span<const Artifact> CompiledProgram::artifacts() const {
  return impl_->files->artifacts;
}
std::string CompiledProgram::manifest() const {
  const std::string& given = impl_->files->manifest;
  return given.empty() ? program_to_json(program()) : given;
}
std::string CompiledProgram::signature() const {
  return impl_->files->signature.to_string();
}
Outcome CompiledProgram::outcome() const {
  return impl_->outcome;
}
bool CompiledProgram::verified() const {
  return is_verified(impl_->files->program);
}

bool CompiledProgram::memory_only() const {
  return impl_->memory_only;
}
std::span<const int> CompiledProgram::input_order() const {
  return impl_->input_order;
}
double CompiledProgram::seconds() const {
  return impl_->seconds;
}
const StartUp& CompiledProgram::start_up() const {
  return impl_->start_up;
}
std::shared_ptr<const CudaDevice> device_of(const CompiledProgram& program) {
  const auto& loaded = program.impl_->loaded;
  return loaded ? std::dynamic_pointer_cast<const CudaDevice>(loaded->device()) : nullptr;
}

Result<std::vector<int64_t>> CompiledProgram::bind(
    std::span<const std::span<const int64_t>> input_sizes) const {
  std::vector<int64_t> symbols;
  if (program().symbols.empty()) return symbols;
  TRY_STATUS(impl_->binder.bind(input_sizes, symbols));
  return symbols;
}

Result<std::vector<int64_t>> CompiledProgram::bind(std::span<const Tensor* const> inputs) const {
  std::vector<std::span<const int64_t>> sizes;
  sizes.reserve(inputs.size());
  for (const Tensor* input : inputs) sizes.emplace_back(input->sizes());
  return bind(sizes);
}

Status CompiledProgram::run(std::span<const Tensor* const> inputs,
                            std::span<Tensor* const> outputs) const {
  const Program& program = this->program();
  TRY_STATUS(check_counts(program, impl_->caller_inputs, inputs.size(), outputs.size()));
  std::vector<int64_t> symbols;
  if (!program.symbols.empty()) {
    TRY(symbols, bind(inputs));
  }
  std::vector<void*> input_pointers(impl_->input_order.size());
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    const size_t canonical = static_cast<size_t>(buffer.index);
    const size_t caller = static_cast<size_t>(impl_->input_order[canonical]);
    TRY_STATUS(check_tensor(*inputs[caller], buffer.spec, symbols, "input", caller));
    input_pointers[canonical] = const_cast<void*>(inputs[caller]->data());
  }
  std::vector<void*> output_pointers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(program.output_buffers[i])];
    TRY_STATUS(check_tensor(*outputs[i], buffer.spec, symbols, "output", i));
    output_pointers.push_back(outputs[i]->data());
  }
  if (!impl_->loaded) return not_loaded();
  TRY_STATUS(impl_->check_not_revoked());
  std::unique_lock<std::mutex> lock;
  if (impl_->cpu_mu) lock = std::unique_lock(*impl_->cpu_mu);
  return impl_->loaded->run(input_pointers, output_pointers, symbols);
}

Status CompiledProgram::launch(std::span<const DevicePtr> inputs,
                               std::span<const DevicePtr> outputs, CudaStream stream,
                               std::span<const int64_t> symbols) const {
  if (!impl_->loaded || impl_->loaded->device()->is_host()) return not_loaded();
  TRY_STATUS(impl_->check_not_revoked());
  TRY(const std::vector<DevicePtr> canonical, impl_->canonical(inputs, outputs.size()));
  return impl_->loaded->launch(canonical, outputs, stream, symbols);
}

Result<int64_t> CompiledProgram::arena_bytes(std::span<const int64_t> symbols) const {
  if (!impl_->loaded) return not_loaded();
  return impl_->loaded->scratch_bytes(symbols);
}

int64_t CompiledProgram::alignment() const {
  return impl_->loaded ? impl_->loaded->device()->alignment() : 0;
}

Status CompiledProgram::launch(std::span<const DevicePtr> inputs,
                               std::span<const DevicePtr> outputs, DevicePtr arena,
                               CudaStream stream, std::span<const int64_t> symbols) const {
  static_assert(kArenaAlignment == Executable::kScratchAlignment);
  if (!impl_->loaded) return not_loaded();
  TRY_STATUS(impl_->check_not_revoked());
  TRY(const std::vector<DevicePtr> canonical, impl_->canonical(inputs, outputs.size()));
  std::unique_lock<std::mutex> lock;
  if (impl_->cpu_mu) lock = std::unique_lock(*impl_->cpu_mu);
  return impl_->loaded->launch(canonical, outputs, arena, stream, symbols);
}

Result<std::vector<Tensor>> CompiledProgram::make_outputs(std::span<const int64_t> symbols) const {
  std::vector<Tensor> outputs;
  for (int index : program().output_buffers) {
    const TensorSpec& spec = program().buffers[static_cast<size_t>(index)].spec;
    std::vector<int64_t> sizes;
    for (const Dim& dim : spec.shape) {
      TRY(const int64_t size, dim.evaluate(symbols));
      sizes.push_back(size);
    }
    TRY_STATUS(checked_bytes(spec.dtype, sizes).map([](int64_t) {}));
    outputs.emplace_back(spec.dtype, std::move(sizes));
  }
  return outputs;
}

Result<std::vector<Tensor>> CompiledProgram::run(std::span<const Tensor* const> inputs) const {
  TRY(const std::vector<int64_t> symbols, bind(inputs));
  TRY(std::vector<Tensor> outputs, make_outputs(symbols));
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : outputs) pointers.push_back(&tensor);
  TRY_STATUS(run(inputs, pointers));
  return outputs;
}

std::shared_ptr<const Device> place_of(const CompiledProgram& program) {
  return program.impl_->loaded ? program.impl_->loaded->device() : nullptr;
}

Result<std::vector<LaunchTime>> profile_launches(const CompiledProgram& program,
                                                 std::span<const DevicePtr> inputs,
                                                 std::span<const DevicePtr> outputs,
                                                 std::span<const int64_t> symbols) {
  const CompiledProgram::Impl& impl = *program.impl_;
  if (!impl.loaded) return not_loaded();
  TRY_STATUS(impl.check_not_revoked());
  TRY(const std::vector<DevicePtr> canonical, impl.canonical(inputs, outputs.size()));
  std::unique_lock<std::mutex> lock;
  if (impl.cpu_mu) lock = std::unique_lock(*impl.cpu_mu);
  return impl.loaded->profile(canonical, outputs, nullptr, symbols);
}

Result<std::string> bundle_of(const CompiledProgram& program) {
  return print_bundle({&program.impl_->files, 1});
}

std::string libraries_left_out(const CompiledProgram& program) {
  const auto device = device_of(program);
  if (device == nullptr) return {};
  const std::vector<ProgramKernel>& wanted = program.program().kernels;
  const std::vector<ProgramKernel>& runs = program.impl_->loaded->program().kernels;
  const LibraryCall* call = nullptr;
  int count = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].recipe.calls_library() || runs[i].recipe.calls_library()) continue;
    for (const Phase& phase : wanted[i].recipe.phases)
      if (phase.call) call = &*phase.call;
    ++count;
  }
  if (call == nullptr) return {};
  const auto here = library_version(*device, call->library);
  return fmt::format("{} of Kiln's own run{} in the place of {} {}: {}",
                     count == 1 ? "a kernel" : fmt::format("{} kernels", count),
                     count == 1 ? "s" : "", call->library, call->version,
                     here ? "the one here is " + *here : here.error().message);
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kTuned:
      return "tuned";
    case Outcome::kJoined:
      return "joined";
    case Outcome::kHit:
      return "hit";
    case Outcome::kLocal:
      return "local";
    case Outcome::kQueued:
      return "queued";
    case Outcome::kStale:
      return "stale";
    case Outcome::kTier0:
      return "tier0";
  }
  return "";
}

}  // namespace kiln
