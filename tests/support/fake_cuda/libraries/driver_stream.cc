// libfake_cuda.so: streams, graphs and events.
#include <chrono>
#include <vector>

#include "tests/support/fake_cuda/libraries/fake_driver.h"

namespace kiln::testing {
namespace {

thread_local FakeStream* g_captured = nullptr;  // the stream that this thread captures

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

FakeGraph& graph_of(void* handle) {
  return *static_cast<FakeGraph*>(handle);
}
// Shared with the work that is queued with it.
std::shared_ptr<FakeEvent>& event_of(CUevent event) {
  return *reinterpret_cast<std::shared_ptr<FakeEvent>*>(event);
}

// Calls that wait for a stream that is captured spoil the capture.
CUresult ready_to_wait_for(CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  FakeStream& waited = stream_of(stream);
  if (waited.capture == nullptr) return CUDA_SUCCESS;
  waited.invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool have_equal_shape(const FakeGraph& a, const FakeGraph& b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i)
    if (a.nodes[i].kind != b.nodes[i].kind) return false;
  return true;
}

}  // namespace

FakeStream& stream_of(CUstream stream) {
  static FakeStream& ordinary = *new FakeStream;
  // The default stream, by any of its three names.
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    return ordinary;
  return *reinterpret_cast<FakeStream*>(stream);
}

CUresult ready_outside_capture() {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (g_captured == nullptr) return CUDA_SUCCESS;
  g_captured->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult enqueue(CUstream handle, FakeNode node) {
  FakeStream& stream = stream_of(handle);
  if (stream.context != nullptr && stream.context != current_context())
    return CUDA_ERROR_INVALID_HANDLE;
  if (stream.capture != nullptr) {
    if (stream.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream.capture->nodes.push_back(std::move(node));
  } else {
    stream.last = FakeDevice::instance().submit(std::move(node.work));
  }
  return CUDA_SUCCESS;
}

}  // namespace kiln::testing

using namespace kiln::testing;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult kiln_fake_enqueue(CUstream stream, const FakeDevice::Work* work) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  return enqueue(stream, {FakeNode::Kind::kLibrary, *work});
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  auto* const made = new FakeStream;
  made->context = current_context();
  *stream = reinterpret_cast<CUstream>(made);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (g_captured == &stream_of(stream)) g_captured = nullptr;
  delete &stream_of(stream);
  return ready();
}

CUresult cuStreamSynchronize(CUstream stream) {
  const CUresult result = ready_to_wait_for(stream);
  if (result != CUDA_SUCCESS) return result;
  return FakeDevice::instance().wait(stream_of(stream).last);
}

CUresult cuStreamQuery(CUstream stream) {
  const CUresult result = ready_to_wait_for(stream);
  if (result != CUDA_SUCCESS) return result;
  if (!FakeDevice::instance().is_done(stream_of(stream).last)) return CUDA_ERROR_NOT_READY;
  return FakeDevice::instance().error();
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  FakeStream& stream = stream_of(handle);
  if (&stream == &stream_of(nullptr)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture = std::make_unique<FakeGraph>();
  stream.invalidated = false;
  g_captured = &stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  FakeStream& stream = stream_of(handle);
  if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  g_captured = nullptr;
  const std::unique_ptr<FakeGraph> captured = std::move(stream.capture);
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (stream.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = reinterpret_cast<CUgraph>(new FakeGraph(*captured));
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = stream_of(stream).capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                 : CU_STREAM_CAPTURE_STATUS_NONE;
  return ready();
}

CUresult cuGraphInstantiate(CUgraphExec* instance, CUgraph graph, unsigned long long) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  *instance = reinterpret_cast<CUgraphExec>(new FakeGraph(graph_of(graph)));
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec instance, CUgraph graph, CUgraphExecUpdateResultInfo* why) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  *why = {};
  if (!have_equal_shape(graph_of(instance), graph_of(graph))) {
    why->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  graph_of(instance) = graph_of(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec instance, CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  for (const FakeNode& node : graph_of(instance).nodes)
    if (const CUresult result = enqueue(stream, node); result != CUDA_SUCCESS) return result;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete &graph_of(graph);
  return ready();
}

CUresult cuGraphExecDestroy(CUgraphExec instance) {
  delete &graph_of(instance);
  return ready();
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  *event = reinterpret_cast<CUevent>(new std::shared_ptr(std::make_shared<FakeEvent>()));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete &event_of(event);
  return ready();
}

// In a capture an event only orders work, and all work is in order here.
CUresult cuEventRecord(CUevent handle, CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (stream_of(stream).capture != nullptr) return CUDA_SUCCESS;
  const std::shared_ptr<FakeEvent> event = event_of(handle);
  event->number = stream_of(stream).last = FakeDevice::instance().submit([event] {
    event->time_ns = now_ns();
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  return FakeDevice::instance().is_done(event_of(event)->number) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  if (const CUresult result = ready_outside_capture(); result != CUDA_SUCCESS) return result;
  return FakeDevice::instance().wait(event_of(event)->number);
}

CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (event_of(start)->number == 0 || event_of(end)->number == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (!FakeDevice::instance().is_done(event_of(start)->number) ||
      !FakeDevice::instance().is_done(event_of(end)->number))
    return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(event_of(end)->time_ns - event_of(start)->time_ns) * 1e-6f;
  return CUDA_SUCCESS;
}

// What Kiln calls: also drivers before CUDA 12.8 know this name.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(ms, start, end);
}

}  // extern "C"
