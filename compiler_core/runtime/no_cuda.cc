// The CUDA classes where the toolkit's headers were missing at build time: no device opens, so
// nothing else here is ever reached.
#include "compiler_core/base/check.h"
#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/cuda_kernel.h"
#include "compiler_core/runtime/cuda_module.h"

namespace kiln {
namespace {

tl::unexpected<Error> no_cuda() {
  return fail(Code::kUnsupported,
              "this build has no CUDA: build it where the CUDA toolkit's headers are");
}

}  // namespace

struct CudaDevice::Impl {
  CudaFacts facts;
};
struct CudaKernel::Impl {
  Recipe recipe;
};
struct CudaGraph::Impl {};
struct CudaModule::Impl {
  std::shared_ptr<const CudaDevice> device;
};

Result<std::shared_ptr<const CudaDevice>> CudaDevice::open(int, const std::string&) {
  return no_cuda();
}
Result<CudaFacts> CudaDevice::probe(int, const std::string&) {
  return no_cuda();
}
CudaDevice::CudaDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaDevice::~CudaDevice() = default;
const CudaFacts& CudaDevice::facts() const {
  return impl_->facts;
}
Result<DevicePtr> CudaDevice::allocate(int64_t) const {
  return no_cuda();
}
void CudaDevice::release(DevicePtr) const {}
Result<int64_t> CudaDevice::free_bytes() const {
  return no_cuda();
}
Status CudaDevice::copy_to_device(DevicePtr, std::span<const uint8_t>) const {
  return no_cuda();
}
Status CudaDevice::copy_to_host(std::span<uint8_t>, DevicePtr) const {
  return no_cuda();
}
Status CudaDevice::copy_on_device(DevicePtr, DevicePtr, int64_t, CudaStream) const {
  return no_cuda();
}
Status CudaDevice::fill(DevicePtr, uint8_t, int64_t, CudaStream) const {
  return no_cuda();
}
Status CudaDevice::synchronize(CudaStream) const {
  return no_cuda();
}
Result<bool> CudaDevice::is_done(CudaStream) const {
  return no_cuda();
}
Result<bool> CudaDevice::is_capturing(CudaStream) const {
  return no_cuda();
}
Result<CudaStream> CudaDevice::create_stream() const {
  return no_cuda();
}
void CudaDevice::destroy_stream(CudaStream) const {}
Status CudaDevice::make_current() const {
  return no_cuda();
}
CudaDevice::Fault CudaDevice::fault() const {
  return Fault::kNone;
}
CudaDevice::Clocks CudaDevice::clocks() const {
  return {};
}

CudaKernel::CudaKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaKernel::CudaKernel(CudaKernel&&) noexcept = default;
CudaKernel& CudaKernel::operator=(CudaKernel&&) noexcept = default;
CudaKernel::~CudaKernel() = default;
Result<CudaKernel> CudaKernel::load(std::shared_ptr<const CudaDevice>, const Artifact&) {
  return no_cuda();
}
const Recipe& CudaKernel::recipe() const {
  return impl_->recipe;
}
Status CudaKernel::launch(std::span<const DevicePtr>, DevicePtr, std::span<const int64_t>,
                          CudaStream) const {
  return no_cuda();
}

CudaGraph::CudaGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
CudaGraph::~CudaGraph() = default;
Result<CudaGraph> CudaGraph::capture(std::shared_ptr<const CudaDevice>,
                                     const std::function<Status(CudaStream)>&) {
  return no_cuda();
}
Status CudaGraph::update(const std::function<Status(CudaStream)>&) {
  return no_cuda();
}
Status CudaGraph::replay(CudaStream) const {
  return no_cuda();
}

Result<CudaEvent> CudaEvent::create(std::shared_ptr<const CudaDevice>) {
  return no_cuda();
}
CudaEvent::CudaEvent(CudaEvent&&) noexcept = default;
CudaEvent& CudaEvent::operator=(CudaEvent&&) noexcept = default;
CudaEvent::~CudaEvent() = default;
Status CudaEvent::record(CudaStream) const {
  return no_cuda();
}
Result<double> CudaEvent::us_since(const CudaEvent&) const {
  return no_cuda();
}

CudaModule::CudaModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaModule::CudaModule(CudaModule&&) noexcept = default;
CudaModule& CudaModule::operator=(CudaModule&&) noexcept = default;
CudaModule::~CudaModule() = default;
Result<CudaModule> CudaModule::load(std::shared_ptr<const CudaDevice>, std::string_view,
                                    const Digest&) {
  return no_cuda();
}
const std::shared_ptr<const CudaDevice>& CudaModule::device() const {
  return impl_->device;
}
Status CudaModule::launch(const std::string&, int64_t, int, std::span<const int64_t>,
                          CudaStream) const {
  return no_cuda();
}

}  // namespace kiln
