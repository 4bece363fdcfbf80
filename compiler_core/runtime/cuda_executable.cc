#include "compiler_core/runtime/cuda_executable.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/program_layout.h"

namespace kiln {
namespace {

constexpr DevicePtr kAlignment = 16;

bool has_no_bytes(const TensorSpec& spec, std::span<const int64_t> dims) {
  const Result<int64_t> bytes = byte_size(spec, dims);
  return bytes && *bytes == 0;
}

// A tensor without elements may have no memory.
Status check_pointer(DevicePtr pointer, const TensorSpec& spec, std::span<const int64_t> dims,
                     std::string_view what) {
  if (pointer != 0 ? pointer % kAlignment == 0 : has_no_bytes(spec, dims)) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{} is {}", what, pointer == 0 ? "null" : "not 16-byte aligned"));
}

Status grow(const std::shared_ptr<const CudaDevice>& device, int64_t bytes, DeviceBuffer& buffer) {
  if (bytes <= buffer.bytes()) return {};
  buffer = DeviceBuffer();  // first, so that old and new never exist together
  TRY(buffer, DeviceBuffer::allocate(device, bytes));
  return {};
}

}  // namespace

struct CudaExecutable::Impl {
  std::shared_ptr<const CudaDevice> device;
  Program program;
  Options options;
  std::vector<CudaKernel> kernels;

  // Of one call at a time.
  DeviceBuffer arena, workspace;
  std::vector<DevicePtr> pointers;  // by buffer
  std::vector<DevicePtr> args;

  // The launches as captured, and what they were captured for.
  std::optional<CudaGraph> graph;
  std::vector<DevicePtr> captured_pointers, captured_outputs;
  std::vector<int64_t> captured_dims;

  Status reserve(std::span<const int64_t> dims) {
    TRY(const MemoryNeed need, memory_need(program, dims));
    TRY_STATUS(grow(device, need.arena_bytes, arena));
    return grow(device, need.workspace_bytes, workspace);
  }

  Status check_pointers(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                        std::span<const int64_t> dims) const {
    for (const Buffer& buffer : program.buffers)
      if (buffer.kind == Buffer::Kind::kInput)
        TRY_STATUS(check_pointer(inputs[static_cast<size_t>(buffer.index)], buffer.spec, dims,
                                 "an input buffer"));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      TRY_STATUS(check_pointer(outputs[i], program.buffers[buffer].spec, dims, "an output buffer"));
    }
    return {};
  }

  Status launch_all(std::span<const DevicePtr> outputs, std::span<const int64_t> dims,
                    CudaStream stream) {
    for (const Launch& launch : program.launches) {
      args.clear();
      for (const int buffer : launch.args) args.push_back(pointers[static_cast<size_t>(buffer)]);
      TRY_STATUS(
          kernels[static_cast<size_t>(launch.kernel)].launch(args, workspace.data(), dims, stream));
    }
    return copy_shared_outputs(outputs, dims, stream);
  }

  // An output that is an input unchanged, or equal to an earlier output, has no buffer of its own.
  Status copy_shared_outputs(std::span<const DevicePtr> outputs, std::span<const int64_t> dims,
                             CudaStream stream) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t buffer = static_cast<size_t>(program.output_buffers[i]);
      if (pointers[buffer] == outputs[i]) continue;
      TRY(const int64_t bytes, byte_size(program.buffers[buffer].spec, dims));
      TRY_STATUS(device->copy_on_device(outputs[i], pointers[buffer], bytes, stream));
    }
    return {};
  }

  bool is_captured(std::span<const DevicePtr> outputs, std::span<const int64_t> dims) const {
    return graph && captured_pointers == pointers &&
           std::equal(outputs.begin(), outputs.end(), captured_outputs.begin(),
                      captured_outputs.end()) &&
           std::equal(dims.begin(), dims.end(), captured_dims.begin(), captured_dims.end());
  }

  // Makes the graph be of this call's pointers.
  Status capture(std::span<const DevicePtr> outputs, std::span<const int64_t> dims) {
    if (is_captured(outputs, dims)) return {};
    captured_pointers.clear();  // of nothing, should this fail
    const auto launches = [&](CudaStream stream) { return launch_all(outputs, dims, stream); };
    if (graph) {
      TRY_STATUS(graph->update(launches));
    } else {
      TRY(graph, CudaGraph::capture(device, launches));
    }
    captured_pointers = pointers;
    captured_outputs.assign(outputs.begin(), outputs.end());
    captured_dims.assign(dims.begin(), dims.end());
    return {};
  }
};

CudaExecutable::CudaExecutable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaExecutable::CudaExecutable(CudaExecutable&&) noexcept = default;
CudaExecutable& CudaExecutable::operator=(CudaExecutable&&) noexcept = default;
CudaExecutable::~CudaExecutable() = default;

Result<CudaExecutable> CudaExecutable::load(std::shared_ptr<const CudaDevice> device,
                                            Program program, std::span<const Artifact> artifacts,
                                            Options options) {
  TRY_STATUS(check_program(program, artifacts));
  auto impl = std::make_unique<Impl>();
  for (const Artifact& artifact : artifacts) {
    TRY(CudaKernel kernel, CudaKernel::load(device, artifact));
    impl->kernels.push_back(std::move(kernel));
  }
  impl->device = std::move(device);
  impl->program = std::move(program);
  impl->options = options;
  // Sizes with symbols wait for the first call that binds them.
  if (has_constant_memory_need(impl->program)) TRY_STATUS(impl->reserve({}));
  return CudaExecutable(std::move(impl));
}

const Program& CudaExecutable::program() const {
  return impl_->program;
}

const CudaDevice& CudaExecutable::device() const {
  return *impl_->device;
}

Status CudaExecutable::launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                              CudaStream stream, std::span<const int64_t> dims) const {
  TRY_STATUS(check_counts(impl_->program, inputs.size(), outputs.size()));
  TRY_STATUS(impl_->check_pointers(inputs, outputs, dims));
  TRY_STATUS(impl_->reserve(dims));
  TRY_STATUS(place_buffers<DevicePtr>(impl_->program, inputs, outputs, impl_->arena.data(), dims,
                                      impl_->pointers));
  if (!impl_->options.reduce_overhead) return impl_->launch_all(outputs, dims, stream);
  TRY_STATUS(impl_->capture(outputs, dims));
  return impl_->graph->replay(stream);
}

}  // namespace kiln
