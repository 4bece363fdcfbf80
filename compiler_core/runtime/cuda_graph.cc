#include "compiler_core/runtime/cuda_graph.h"

#include <utility>

#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {

struct CudaGraph::Impl {
  std::shared_ptr<const CudaDevice> device;
  // Launches are captured on a stream of our own: the default stream cannot be captured, and the
  // caller's may hold other work.
  Stream stream = nullptr;
  CUgraphExec instance = nullptr;

  ~Impl() {
    drop_instance();
    device->destroy_stream(stream);
  }

  const CudaDriver& driver() const { return device->impl().driver; }
  Status check(CUresult result, std::string_view doing) const {
    return device->impl().check(result, doing);
  }

  void drop_instance() {
    CUgraphExec old = std::exchange(instance, nullptr);
    if (old == nullptr) return;
    if (const auto current = device->enter()) static_cast<void>(driver().cuGraphExecDestroy(old));
  }

  // The graph of `launches`; the caller destroys it.
  Result<CUgraph> record(const std::function<Status(Stream)>& launches) const {
    // Thread local: what other threads do meanwhile is no error.
    TRY_STATUS(check(driver().cuStreamBeginCapture(static_cast<CUstream>(stream),
                                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     "beginning a capture"));
    const Status launched = launches(stream);
    CUgraph graph = nullptr;
    const Status ended = check(driver().cuStreamEndCapture(static_cast<CUstream>(stream), &graph),
                               "ending a capture");
    if (launched && ended) return graph;
    if (graph != nullptr) static_cast<void>(driver().cuGraphDestroy(graph));
    return fail(launched ? ended.error() : launched.error());
  }

  Status instantiate(CUgraph graph) {
    drop_instance();
    return check(driver().cuGraphInstantiate(&instance, graph, 0), "instantiating a graph");
  }
};

CudaGraph::CudaGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
CudaGraph::~CudaGraph() = default;

Result<CudaGraph> CudaGraph::capture(std::shared_ptr<const CudaDevice> device,
                                     const std::function<Status(Stream)>& launches) {
  auto impl = std::make_unique<Impl>();
  impl->device = std::move(device);
  const std::shared_ptr<const CudaDevice> on = impl->device;
  TRY(const CurrentContext current, on->enter());
  TRY(impl->stream, on->create_stream());
  TRY(CUgraph graph, impl->record(launches));
  const Status made = impl->instantiate(graph);
  static_cast<void>(impl->driver().cuGraphDestroy(graph));
  if (!made) return fail(made.error());
  return CudaGraph(std::move(impl));
}

Status CudaGraph::update(const std::function<Status(Stream)>& launches) {
  TRY(const CurrentContext current, impl_->device->enter());
  TRY(CUgraph graph, impl_->record(launches));
  CUgraphExecUpdateResultInfo why{};
  Status made;
  if (impl_->instance == nullptr ||
      impl_->driver().cuGraphExecUpdate(impl_->instance, graph, &why) != CUDA_SUCCESS)
    made = impl_->instantiate(graph);
  static_cast<void>(impl_->driver().cuGraphDestroy(graph));
  return made;
}

Status CudaGraph::replay(Stream stream) const {
  TRY(const CurrentContext current, impl_->device->enter());
  return impl_->check(impl_->driver().cuGraphLaunch(impl_->instance, static_cast<CUstream>(stream)),
                      "replaying a graph");
}

Result<CudaEvent> CudaEvent::create(std::shared_ptr<const CudaDevice> device) {
  TRY(const CurrentContext current, device->enter());
  CUevent made = nullptr;
  TRY_STATUS(device->impl().check(device->impl().driver.cuEventCreate(&made, CU_EVENT_DEFAULT),
                                  "making an event"));
  CudaEvent event;
  event.device_ = std::move(device);
  event.event_ = made;
  return event;
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept
    : device_(std::move(other.device_)), event_(std::exchange(other.event_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (event_ == nullptr) return;
  if (const auto current = device_->enter())
    static_cast<void>(device_->impl().driver.cuEventDestroy(static_cast<CUevent>(event_)));
}

Status CudaEvent::record(Stream stream) const {
  TRY(const CurrentContext current, device_->enter());
  return device_->impl().check(device_->impl().driver.cuEventRecord(static_cast<CUevent>(event_),
                                                                    static_cast<CUstream>(stream)),
                               "recording an event");
}

Result<double> CudaEvent::us_since(const Event& start) const {
  TRY(const CurrentContext current, device_->enter());
  void* const began = static_cast<const CudaEvent&>(start).event_;
  float ms = 0;
  TRY_STATUS(
      device_->impl().check(device_->impl().driver.cuEventElapsedTime(
                                &ms, static_cast<CUevent>(began), static_cast<CUevent>(event_)),
                            "reading the time between events"));
  return 1000.0 * static_cast<double>(ms);
}

}  // namespace kiln
