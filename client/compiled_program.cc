#include "client/compiled_program.h"

#include <fmt/format.h>

namespace kiln {
namespace {

std::string describe(DType dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(sizes, ","));
}

// Whether `tensor` is what a buffer of the program holds.
Status check_tensor(const Tensor& tensor, const TensorSpec& spec, std::string_view what,
                    size_t index) {
  std::vector<int64_t> expected;
  for (const Dim& dim : spec.shape) {
    TRY(const int64_t size, dim.evaluate({}));
    expected.push_back(size);
  }
  if (tensor.dtype() == spec.dtype && tensor.sizes() == expected) return {};
  return fail(Code::kInvalidArgument, fmt::format("{} {} is {} but the program takes {}", what,
                                                  index, describe(tensor.dtype(), tensor.sizes()),
                                                  describe(spec.dtype, expected)));
}

}  // namespace

CompiledProgram::CompiledProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledProgram::~CompiledProgram() = default;
const Program& CompiledProgram::program() const {
  return impl_->executable.program();
}
std::string_view CompiledProgram::outcome() const {
  return impl_->outcome;
}
double CompiledProgram::seconds() const {
  return impl_->seconds;
}

Status CompiledProgram::run(std::span<const Tensor* const> inputs,
                            std::span<Tensor* const> outputs) const {
  const Program& program = this->program();
  if (inputs.size() != static_cast<size_t>(impl_->caller_inputs))
    return fail(Code::kInvalidArgument, fmt::format("the program takes {} inputs, {} were given",
                                                    impl_->caller_inputs, inputs.size()));
  if (outputs.size() != program.output_buffers.size())
    return fail(Code::kInvalidArgument, fmt::format("the program has {} outputs, {} were given",
                                                    program.output_buffers.size(), outputs.size()));
  std::vector<void*> input_pointers(impl_->input_order.size());
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    const size_t canonical = static_cast<size_t>(buffer.index);
    const size_t caller = static_cast<size_t>(impl_->input_order[canonical]);
    TRY_STATUS(check_tensor(*inputs[caller], buffer.spec, "input", caller));
    input_pointers[canonical] = const_cast<void*>(inputs[caller]->data());
  }
  std::vector<void*> output_pointers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(program.output_buffers[i])];
    TRY_STATUS(check_tensor(*outputs[i], buffer.spec, "output", i));
    output_pointers.push_back(outputs[i]->data());
  }
  std::lock_guard lock(*impl_->pool_mu);
  return impl_->executable.run(input_pointers, output_pointers, *impl_->pool);
}

Result<std::vector<Tensor>> CompiledProgram::run(std::span<const Tensor* const> inputs) const {
  std::vector<Tensor> outputs;
  for (int index : program().output_buffers) {
    const TensorSpec& spec = program().buffers[static_cast<size_t>(index)].spec;
    std::vector<int64_t> sizes;
    for (const Dim& dim : spec.shape) {
      TRY(const int64_t size, dim.evaluate({}));
      sizes.push_back(size);
    }
    TRY_STATUS(checked_bytes(spec.dtype, sizes).map([](int64_t) {}));
    outputs.emplace_back(spec.dtype, std::move(sizes));
  }
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : outputs) pointers.push_back(&tensor);
  TRY_STATUS(run(inputs, pointers));
  return outputs;
}

}  // namespace kiln
