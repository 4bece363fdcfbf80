// CudaGraph: launches captured once and replayed as one. CudaEvent: a point in a stream's work, for
// timing on the device's own clock. Movable owners; one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class CudaGraph : public LaunchGraph {
 public:
  // Captures what `launches` puts on the stream it is given, and instantiates it. Errors of
  // `launches` come through.
  static Result<CudaGraph> capture(std::shared_ptr<const CudaDevice> device,
                                   const std::function<Status(Stream)>& launches);
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;
  ~CudaGraph() override;
  // The same launches with other arguments: updates the instance where it can (cuGraphExecUpdate),
  // else makes a new one.
  Status update(const std::function<Status(Stream)>& launches) override;
  Status replay(Stream stream) const override;

 private:
  struct Impl;
  explicit CudaGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class CudaEvent : public Event {
 public:
  static Result<CudaEvent> create(std::shared_ptr<const CudaDevice> device);
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent() override;
  Status record(Stream stream) const override;
  Result<double> us_since(const Event& start) const override;

 private:
  CudaEvent() = default;
  std::shared_ptr<const CudaDevice> device_;
  void* event_ = nullptr;
};

}  // namespace kiln
