#include "compiler_core/runtime/cuda_device.h"

#include <fmt/core.h>

#include <array>

#include "compiler_core/base/check.h"
#include "compiler_core/runtime/cuda_driver.h"
#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/cuda_kernel.h"

namespace kiln {
namespace {

Result<int> attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  TRY_STATUS(driver.check(driver.cuDeviceGetAttribute(&value, which, device),
                          "asking the GPU for its attributes"));
  return value;
}

Result<CUdevice> device_at(const CudaDriver& driver, int ordinal) {
  int count = 0;
  TRY_STATUS(driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs"));
  if (count == 0) return fail(Code::kNotFound, "no NVIDIA GPU here");
  if (ordinal < 0 || ordinal >= count)
    return fail(Code::kNotFound, fmt::format("no GPU {} here: there are {}", ordinal, count));
  CUdevice device = 0;
  TRY_STATUS(driver.check(driver.cuDeviceGet(&device, ordinal), "opening the GPU"));
  return device;
}

Result<CudaFacts> facts_of(const CudaDriver& driver, CUdevice device, int ordinal) {
  CudaFacts facts;
  facts.ordinal = ordinal;
  std::array<char, 256> text{};
  const int size = static_cast<int>(text.size());
  TRY_STATUS(driver.check(driver.cuDeviceGetName(text.data(), size, device), "naming the GPU"));
  facts.name = text.data();
  TRY_STATUS(
      driver.check(driver.cuDeviceGetPCIBusId(text.data(), size, device), "finding the GPU"));
  facts.bus_id = text.data();
  TRY_STATUS(driver.check(driver.cuDriverGetVersion(&facts.driver), "asking for the version"));
  size_t memory = 0;
  TRY_STATUS(driver.check(driver.cuDeviceTotalMem(&memory, device), "asking for the memory"));
  facts.memory_bytes = static_cast<int64_t>(memory);
  const auto ask = [&](CUdevice_attribute which) { return attribute(driver, device, which); };
  TRY(const int major, ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  TRY(const int minor, ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  facts.capability = 10 * major + minor;
  TRY(facts.sms, ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  TRY(facts.l2_bytes, ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  TRY(facts.max_shared_bytes, ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  return facts;
}

CUstream as_stream(Stream stream) {
  return static_cast<CUstream>(stream);
}

}  // namespace

// From 9.0 on a card is also given code of its own architecture alone, which has the tensor cores'
// and the copy engine's newest instructions: "sm_90a".
Target CudaFacts::target() const {
  Target target;
  target.backend = Backend::kCuda;
  target.isa = fmt::format("sm_{}{}", capability, capability == 90 ? "a" : "");
  target.device_model = name;
  target.units = sms;
  target.toolkit = fmt::format("cuda-{}", driver / 1000);
  return target;
}

Result<CudaFacts> CudaDevice::probe(int ordinal, const std::string& libcuda) {
  TRY(const CudaDriver driver, CudaDriver::open(libcuda));
  TRY(const CUdevice device, device_at(driver, ordinal));
  return facts_of(driver, device, ordinal);
}

Result<std::shared_ptr<const CudaDevice>> CudaDevice::open(int ordinal, const std::string& libcuda,
                                                           const std::string& libcublaslt) {
  auto impl = std::make_unique<Impl>();
  impl->libcuda_file = libcuda;
  impl->cublaslt_file = libcublaslt;
  TRY(impl->driver, CudaDriver::open(libcuda));
  TRY(impl->device, device_at(impl->driver, ordinal));
  TRY(impl->facts, facts_of(impl->driver, impl->device, ordinal));
  TRY_STATUS(impl->check(impl->driver.cuDevicePrimaryCtxRetain(&impl->context, impl->device),
                         "opening a context on the GPU"));
  return std::shared_ptr<const CudaDevice>(new CudaDevice(std::move(impl)));
}

CudaDevice::CudaDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CudaDevice::~CudaDevice() {
  if (impl_->cublaslt) {
    if (const auto current = enter()) impl_->cublaslt.reset();
  }
  impl_->driver.cuDevicePrimaryCtxRelease(impl_->device);
}

const CudaFacts& CudaDevice::facts() const {
  return impl_->facts;
}

Result<CurrentContext> CudaDevice::enter() const {
  CUcontext before = nullptr;
  TRY_STATUS(impl_->check(impl_->driver.cuCtxGetCurrent(&before), "asking for the context"));
  if (before == impl_->context) return CurrentContext(nullptr, nullptr);
  TRY_STATUS(
      impl_->check(impl_->driver.cuCtxSetCurrent(impl_->context), "using the GPU's context"));
  return CurrentContext(impl_.get(), before);
}

CurrentContext::~CurrentContext() {
  if (device_ != nullptr)
    static_cast<void>(device_->driver.cuCtxSetCurrent(static_cast<CUcontext>(before_)));
}

Device::Fault CudaDevice::fault() const {
  return impl_->fault.load(std::memory_order_relaxed);
}

Result<DevicePtr> CudaDevice::allocate(int64_t bytes) const {
  CHECK(bytes > 0, "sizes come from a checked recipe or program");
  TRY(const CurrentContext current, enter());
  CUdeviceptr memory = 0;
  const CUresult got = impl_->driver.cuMemAlloc(&memory, static_cast<size_t>(bytes));
  if (got == CUDA_SUCCESS) return memory;
  return fail(impl_->check(got, fmt::format("allocating {} bytes on the GPU", bytes)).error());
}

void CudaDevice::release(DevicePtr memory) const {
  if (const auto current = enter()) static_cast<void>(impl_->driver.cuMemFree(memory));
}

Result<int64_t> CudaDevice::free_bytes() const {
  TRY(const CurrentContext current, enter());
  size_t free = 0, total = 0;
  TRY_STATUS(impl_->check(impl_->driver.cuMemGetInfo(&free, &total), "asking for free memory"));
  return static_cast<int64_t>(free);
}

// The driver's copy returns once pageable bytes are in its own buffers, and streams that do not
// wait for the default one would overtake the rest.
Status CudaDevice::copy_to_device(DevicePtr to, std::span<const uint8_t> from) const {
  if (from.empty()) return {};
  TRY(const CurrentContext current, enter());
  TRY_STATUS(
      impl_->check(impl_->driver.cuMemcpyHtoD(to, from.data(), from.size()), "copying to the GPU"));
  return synchronize(nullptr);
}

Status CudaDevice::copy_to_host(std::span<uint8_t> to, DevicePtr from) const {
  if (to.empty()) return {};
  TRY(const CurrentContext current, enter());
  return impl_->check(impl_->driver.cuMemcpyDtoH(to.data(), from, to.size()),
                      "copying from the GPU");
}

Status CudaDevice::copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes,
                                  Stream stream) const {
  if (bytes == 0) return {};
  TRY(const CurrentContext current, enter());
  return impl_->check(
      impl_->driver.cuMemcpyDtoDAsync(to, from, static_cast<size_t>(bytes), as_stream(stream)),
      "copying on the GPU");
}

Status CudaDevice::fill(DevicePtr memory, uint8_t value, int64_t bytes, Stream stream) const {
  if (bytes == 0) return {};
  TRY(const CurrentContext current, enter());
  return impl_->check(
      impl_->driver.cuMemsetD8Async(memory, value, static_cast<size_t>(bytes), as_stream(stream)),
      "filling memory of the GPU");
}

Status CudaDevice::synchronize(Stream stream) const {
  TRY(const CurrentContext current, enter());
  return impl_->check(impl_->driver.cuStreamSynchronize(as_stream(stream)), "waiting for the GPU");
}

Result<bool> CudaDevice::is_done(Stream stream) const {
  TRY(const CurrentContext current, enter());
  const CUresult state = impl_->driver.cuStreamQuery(as_stream(stream));
  if (state == CUDA_ERROR_NOT_READY) return false;
  TRY_STATUS(impl_->check(state, "asking whether the GPU is done"));
  return true;
}

Result<bool> CudaDevice::is_capturing(Stream stream) const {
  TRY(const CurrentContext current, enter());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = impl_->driver.cuStreamIsCapturing(as_stream(stream), &status);
  // The legacy default stream, while another stream that waits for it is captured.
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  TRY_STATUS(impl_->check(asked, "asking whether a stream is captured"));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<Stream> CudaDevice::create_stream() const {
  TRY(const CurrentContext current, enter());
  CUstream stream = nullptr;
  TRY_STATUS(impl_->check(impl_->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                          "making a stream"));
  return stream;
}

void CudaDevice::destroy_stream(Stream stream) const {
  if (stream == nullptr) return;
  if (const auto current = enter())
    static_cast<void>(impl_->driver.cuStreamDestroy(as_stream(stream)));
}

Result<std::unique_ptr<Event>> CudaDevice::create_event() const {
  TRY(CudaEvent event, CudaEvent::create(self()));
  return std::make_unique<CudaEvent>(std::move(event));
}

Result<std::unique_ptr<LaunchGraph>> CudaDevice::capture(
    const std::function<Status(Stream)>& launches) const {
  TRY(CudaGraph graph, CudaGraph::capture(self(), launches));
  return std::make_unique<CudaGraph>(std::move(graph));
}

Result<std::unique_ptr<const LoadedKernel>> CudaDevice::load_as_told(
    const Artifact& artifact) const {
  TRY(CudaKernel kernel, CudaKernel::load(self(), artifact));
  return std::make_unique<const CudaKernel>(std::move(kernel));
}

Device::Clocks CudaDevice::clocks() const {
  std::call_once(impl_->nvml_once, [this] { impl_->nvml = Nvml::open(impl_->facts.bus_id); });
  return impl_->nvml.clocks();
}

}  // namespace kiln
