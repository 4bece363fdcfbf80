#include "client/gpu_program.h"

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

Result<int64_t> constant_bytes(const TensorSpec& spec) {
  int64_t bytes = size_of(spec.dtype);
  for (const Dim& dim : spec.shape) {
    TRY(const int64_t size, dim.evaluate({}));
    bytes *= size;
  }
  return bytes;
}

std::vector<DevicePtr> pointers_of(const std::vector<DeviceBuffer>& buffers) {
  std::vector<DevicePtr> pointers;
  pointers.reserve(buffers.size());
  for (const DeviceBuffer& buffer : buffers) pointers.push_back(buffer.data());
  return pointers;
}

}  // namespace

Result<GpuProgram> GpuProgram::load(std::shared_ptr<const CudaDevice> device,
                                    const Program& program, std::span<const Artifact> artifacts,
                                    bool reduce_overhead) {
  CudaExecutable::Options options;
  options.reduce_overhead = reduce_overhead;
  TRY(CudaExecutable executable, CudaExecutable::load(device, program, artifacts, options));
  return GpuProgram(std::move(device), std::move(executable));
}

Status GpuProgram::allocate() {
  const Program& program = executable_.program();
  std::vector<DeviceBuffer> inputs, outputs;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    const size_t index = static_cast<size_t>(buffer.index);
    if (inputs.size() <= index) inputs.resize(index + 1);
    TRY(const int64_t bytes, constant_bytes(buffer.spec));
    TRY(inputs[index], DeviceBuffer::allocate(device_, bytes));
  }
  for (const int output : program.output_buffers) {
    TRY(const int64_t bytes, constant_bytes(program.buffers[static_cast<size_t>(output)].spec));
    TRY(DeviceBuffer memory, DeviceBuffer::allocate(device_, bytes));
    outputs.push_back(std::move(memory));
  }
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  input_pointers_ = pointers_of(inputs_);
  output_pointers_ = pointers_of(outputs_);
  return {};
}

Status GpuProgram::run(std::span<void* const> inputs, std::span<void* const> outputs) {
  if (outputs_.empty()) TRY_STATUS(allocate());
  CHECK(inputs.size() >= inputs_.size() && outputs.size() == outputs_.size(),
        "the caller has checked the tensors");
  for (size_t i = 0; i < inputs_.size(); ++i)
    TRY_STATUS(device_->copy_to_device(
        inputs_[i].data(),
        {static_cast<const uint8_t*>(inputs[i]), static_cast<size_t>(inputs_[i].bytes())}));
  TRY_STATUS(executable_.launch(input_pointers_, output_pointers_, nullptr));
  TRY_STATUS(device_->synchronize(nullptr));
  for (size_t i = 0; i < outputs_.size(); ++i)
    TRY_STATUS(device_->copy_to_host(
        {static_cast<uint8_t*>(outputs[i]), static_cast<size_t>(outputs_[i].bytes())},
        outputs_[i].data()));
  return {};
}

}  // namespace kiln
