// Profile: when each launch of a few calls of a program ran, beside what the launch has to move and to
// compute at least. A value; shown as text and JSON, and as a timeline that Perfetto opens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/cli/explain/explanation.h"
#include "client/client.h"
#include "compiler_core/runtime/executable.h"

namespace kiln::cli {

struct Profile {
  // One launch of the program.
  struct Kernel {
    std::string name;  // "matmul"
    std::string schedule;
    std::vector<std::string> ops, sources;  // fused ATen ops; where they stand
    int64_t bytes = 0, flops = 0;           // at least; 0: not known
    double floor_us = 0;                    // the roofline bound; 0: not known
    double median_us = 0;                   // of the calls
  };
  std::string device;
  std::vector<Kernel> launches;                // by the program's launches
  std::vector<std::vector<LaunchTime>> calls;  // one after the other
  double call_us = 0;  // median, from the first launch's begin to the last's end
};

// Runs `program` on tensors in the host's memory a few times. `exported`: what it was compiled from,
// for origins and costs; costs are left out where the sizes of these inputs are not those that it was
// exported with. kUnsupported: it is not loaded here; kOverloaded: the device has no room; kInternal:
// the device refuses or faults, with its message.
Result<Profile> take_profile(const CompiledProgram& program, const ExportedProgram& exported,
                             std::span<const Tensor* const> inputs);

// In the Trace Event Format: complete events of microseconds, a track for launches and one for calls.
nlohmann::ordered_json trace_json(const std::string& file, const Profile& profile);
// Fields: device, call_us, launches[] of {launch, kernel, schedule, ops, us, share, bytes,
// gb_per_s, flops, floor_us, of_roofline}; what is not known is left out.
nlohmann::ordered_json profile_json(const Profile& profile);
// A line for each of the ten launches that take longest.
std::string profile_text(const Profile& profile);

}  // namespace kiln::cli
