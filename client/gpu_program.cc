#include "client/gpu_program.h"

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

Result<int64_t> bytes_of(const TensorSpec& spec, std::span<const int64_t> symbols) {
  TRY(const int64_t elements, element_count(spec, symbols));
  return elements * size_of(spec.dtype);
}

// Sets entry `index` of both lists; memory that is there and large enough stays.
Status provide(const std::shared_ptr<const CudaDevice>& device, size_t index, int64_t bytes,
               std::vector<DeviceBuffer>& buffers, std::vector<int64_t>& sizes) {
  if (buffers.size() <= index) buffers.resize(index + 1);
  if (sizes.size() <= index) sizes.resize(index + 1, 0);
  sizes[index] = bytes;
  if (bytes <= buffers[index].bytes()) return {};
  buffers[index] = DeviceBuffer();  // first, so that old and new never exist together
  TRY(buffers[index], DeviceBuffer::allocate(device, bytes));
  return {};
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

Status GpuProgram::allocate(std::span<const int64_t> symbols) {
  const Program& program = executable_.program();
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    TRY(const int64_t bytes, bytes_of(buffer.spec, symbols));
    TRY_STATUS(provide(device_, static_cast<size_t>(buffer.index), bytes, inputs_, input_bytes_));
  }
  for (size_t i = 0; i < program.output_buffers.size(); ++i) {
    const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
    TRY(const int64_t bytes, bytes_of(program.buffers[buffer].spec, symbols));
    TRY_STATUS(provide(device_, i, bytes, outputs_, output_bytes_));
  }
  input_pointers_ = pointers_of(inputs_);
  output_pointers_ = pointers_of(outputs_);
  return {};
}

Status GpuProgram::run(std::span<void* const> inputs, std::span<void* const> outputs,
                       std::span<const int64_t> symbols) {
  TRY_STATUS(allocate(symbols));
  CHECK(inputs.size() >= inputs_.size() && outputs.size() == outputs_.size(),
        "the caller has checked the tensors");
  for (size_t i = 0; i < inputs_.size(); ++i)
    TRY_STATUS(device_->copy_to_device(inputs_[i].data(), {static_cast<const uint8_t*>(inputs[i]),
                                                           static_cast<size_t>(input_bytes_[i])}));
  TRY_STATUS(executable_.launch(input_pointers_, output_pointers_, nullptr, symbols));
  TRY_STATUS(device_->synchronize(nullptr));
  for (size_t i = 0; i < outputs_.size(); ++i)
    TRY_STATUS(device_->copy_to_host(
        {static_cast<uint8_t*>(outputs[i]), static_cast<size_t>(output_bytes_[i])},
        outputs_[i].data()));
  return {};
}

}  // namespace kiln
