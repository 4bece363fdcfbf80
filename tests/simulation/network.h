// Network: what a simulated client or worker may use of its world.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/core/events.h"

namespace kiln::simulation {

class Network {
 public:
  virtual ~Network() = default;
  virtual void after(int64_t ms, std::function<void()> run) = 0;
  // A message: late, out of order, and while there are faults lost or doubled.
  virtual void to_coordinator(Event event) = 0;
  // For what the coordinator's shell notices by itself: never lost while the coordinator lives.
  virtual void tell_coordinator(Event event) = 0;
  virtual bool faults() const = 0;
  virtual int64_t now_ms() const = 0;
  // Those of a worker that starts now; null: it has none, and nothing asks for any.
  virtual std::shared_ptr<const TemplateVersions> templates() = 0;
};

}  // namespace kiln::simulation
