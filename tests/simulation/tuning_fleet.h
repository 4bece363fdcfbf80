// TuningFleet: how fast a fleet tunes, in simulated time. One coordinator core, workers with devices
// and compilers, and builders, each of which does what the real one does (worker/jobs, worker/agent):
// a job's candidates are compiled first come, first served; a device tries what is ready, whole jobs
// first, and makes inputs and reference for a workload that it does not hold; results go with the
// next report. No faults: this is about figures, cluster.h is about right and wrong.
//
// What things take comes from measurements on machines with H100s (docs/simulation.md). A run is a
// function of its arguments, except for `core_cpu_s`, which is this machine's. One thread.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace kiln::simulation {

struct FleetShape {
  int devices = 1;
  int cores = 16;  // beside each device: so many compilers
  int builders = 0;
  int builder_cores = 0;  // of each
};

// Milliseconds, unless said otherwise.
struct FleetCosts {
  double build = 275;        // of a candidate, the mean
  double open = 20;          // inputs and reference of a workload, the mean
  double try_one = 8.6;      // verifying and timing a candidate, the mean
  double final_one = 6;      // the same of each finalist
  double calibration = 2.5;  // after each lease
  double latency = 0.3;      // of a message
  double handling = 0.2;     // the coordinator's part of a message, encoding and signing included
  double store = 4;          // until a write is durable
  double plan = 400;         // from a request to its plan
  int workloads_held = 24;   // by a device, open
  double spilling = 0.15;    // share of candidates that keep registers in local memory
  double twins = 0.1;        // share that compile to what the one before them did
  int slots = 14;            // leases of a device, at most
  bool variants = true;  // of recorded kernels some wait for others (PlannedKernel::has_variants)
  double reserves = 0;   // share that is expected to be far behind (PlannedKernel::reserves)
};

// A kernel as it was tuned: its candidates, best guess first.
struct RecordedKernel {
  struct Candidate {
    std::string schedule;
    double build_ms = 0, try_ms = 0;
    double us = 0;  // of the kernel itself; 0: it spills
  };
  int program = 0;
  double open_ms = 0, final_ms = 0;
  std::vector<Candidate> candidates;
};
// Lines "kernel PROGRAM OPEN_MS FINAL_MS", each followed by its "candidate BUILD_MS TRY_MS US SCHEDULE".
// A line that is none ends the list.
std::vector<RecordedKernel> read_kernels(std::istream& text);

struct FleetWork {
  int programs = 3;
  int kernels = 47;                        // of each program
  double candidates = 8;                   // of each kernel, the mean
  std::vector<RecordedKernel> recorded{};  // instead of those, where there are any
};

struct FleetFigures {
  double seconds = 0;  // from the requests to the last answer
  int64_t leases = 0;  // of devices
  int64_t candidates = 0;
  int64_t builds = 0;     // compilers ran so often
  int64_t opens = 0;      // inputs and references made
  double busy = 0;        // the devices' share between first and last measurement
  double device_s = 0;    // that they were busy, together
  double waited_s = 0;    // that they stood still with a lease, for its compilers
  double compile_s = 0;   // that compilers ran, together
  double compiling = 0;   // the compilers' share until the last build
  double core_cpu_s = 0;  // of the core's steps
  int64_t answers = 0;
};

FleetFigures tune(const FleetShape& shape, const FleetWork& work, const FleetCosts& costs = {});

// Devices x cores + cores of a builder, or builders x cores of each: "2x32", "1x4+12", "10x10+5x16".
// The first cores are divided among the devices. A name that is none gives no devices.
FleetShape parse_shape(const std::string& name);

}  // namespace kiln::simulation
