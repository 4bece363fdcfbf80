#include "client/loaded_program.h"

#include <algorithm>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

Result<int64_t> bytes_of(const TensorSpec& spec, std::span<const int64_t> symbols) {
  TRY(const int64_t elements, element_count(spec, symbols));
  return elements * size_of(spec.dtype);
}

}  // namespace

Status LoadedProgram::Staging::reserve(const std::shared_ptr<const Device>& device, size_t index,
                                       int64_t wanted) {
  if (buffers.size() <= index) {
    buffers.resize(index + 1);
    bytes.resize(index + 1, 0);
    pointers.resize(index + 1, 0);
  }
  TRY_STATUS(buffers[index].reserve(device, wanted));
  bytes[index] = wanted;
  pointers[index] = buffers[index].data();
  return {};
}

Status LoadedProgram::allocate(std::span<const int64_t> symbols) {
  const Program& program = executable_.program();
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    TRY(const int64_t bytes, bytes_of(buffer.spec, symbols));
    TRY_STATUS(inputs_.reserve(device(), static_cast<size_t>(buffer.index), bytes));
  }
  for (size_t i = 0; i < program.output_buffers.size(); ++i) {
    const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
    TRY(const int64_t bytes, bytes_of(program.buffers[buffer].spec, symbols));
    TRY_STATUS(outputs_.reserve(device(), i, bytes));
  }
  return {};
}

Status LoadedProgram::run(std::span<void* const> inputs, std::span<void* const> outputs,
                          std::span<const int64_t> symbols) {
  if (device()->is_host()) {
    inputs_.pointers.assign(inputs.size(), 0);
    outputs_.pointers.assign(outputs.size(), 0);
    std::ranges::transform(inputs, inputs_.pointers.begin(), device_ptr);
    std::ranges::transform(outputs, outputs_.pointers.begin(), device_ptr);
    return executable_.launch(inputs_.pointers, outputs_.pointers, nullptr, symbols);
  }
  TRY_STATUS(allocate(symbols));
  CHECK(inputs.size() >= inputs_.buffers.size() && outputs.size() == outputs_.buffers.size(),
        "the caller has checked the tensors");
  for (size_t i = 0; i < inputs_.buffers.size(); ++i)
    TRY_STATUS(device()->copy_to_device(
        inputs_.pointers[i],
        {static_cast<const uint8_t*>(inputs[i]), static_cast<size_t>(inputs_.bytes[i])}));
  TRY_STATUS(executable_.launch(inputs_.pointers, outputs_.pointers, nullptr, symbols));
  TRY_STATUS(device()->synchronize(nullptr));
  for (size_t i = 0; i < outputs_.buffers.size(); ++i)
    TRY_STATUS(device()->copy_to_host(
        {static_cast<uint8_t*>(outputs[i]), static_cast<size_t>(outputs_.bytes[i])},
        outputs_.pointers[i]));
  return {};
}

}  // namespace kiln
