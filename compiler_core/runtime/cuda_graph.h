// CudaGraph: launches captured once and replayed as one. CudaEvent: a point in a stream's work, for
// timing on the device's own clock. Movable owners; one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class CudaGraph {
 public:
  // Captures what `launches` puts on the stream it is given, and instantiates it. Errors of
  // `launches` come through.
  static Result<CudaGraph> capture(std::shared_ptr<const CudaDevice> device,
                                   const std::function<Status(CudaStream)>& launches);
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;
  ~CudaGraph();
  // The same launches with other arguments: updates the instance where it can (cuGraphExecUpdate),
  // else makes a new one.
  Status update(const std::function<Status(CudaStream)>& launches);
  Status replay(CudaStream stream) const;

 private:
  struct Impl;
  explicit CudaGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class CudaEvent {
 public:
  static Result<CudaEvent> create(std::shared_ptr<const CudaDevice> device);
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();
  Status record(CudaStream stream) const;
  // Microseconds from `start` to this one. REQUIRES: both are done (CudaDevice::synchronize).
  Result<double> us_since(const CudaEvent& start) const;

 private:
  CudaEvent() = default;
  std::shared_ptr<const CudaDevice> device_;
  void* event_ = nullptr;
};

}  // namespace kiln
