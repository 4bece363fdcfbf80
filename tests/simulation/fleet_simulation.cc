// fleet_simulation [--json] [--programs N] [--kernels N] [--candidates N] [--reserves SHARE] [--build MS] [--try MS]
//   [--recorded FILE [--no-variants]] [--held N] [SHAPE...]: how fast fleets of these shapes tune (tuning_fleet.h); default: those of the table in
//   docs/simulation.md.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>

#include "tests/simulation/tuning_fleet.h"

int main(int argc, char** argv) {
  using namespace kiln::simulation;
  FleetWork work;
  FleetCosts costs;
  std::vector<std::string> shapes = {"1x16", "1x32", "2x32", "1x4+12"};
  bool json = false;
  CLI::App app("Fleets tune in simulated time");
  app.add_flag("--json", json);
  app.add_option("--programs", work.programs)->capture_default_str();
  app.add_option("--kernels", work.kernels, "of a program")->capture_default_str();
  app.add_option("--candidates", work.candidates, "of a kernel")->capture_default_str();
  app.add_option("--reserves", costs.reserves, "share of candidates in reserve")
      ->capture_default_str();
  app.add_option("--build", costs.build, "ms of a candidate")->capture_default_str();
  app.add_option("--open", costs.open, "ms of a workload")->capture_default_str();
  app.add_option("--try", costs.try_one, "ms of a candidate")->capture_default_str();
  app.add_option("--final", costs.final_one, "ms of a finalist")->capture_default_str();
  app.add_option("--handling", costs.handling, "ms of a message")->capture_default_str();
  app.add_option("SHAPE", shapes, "devices x cores [+ cores of a builder]")->capture_default_str();
  app.add_option("--held", costs.workloads_held, "workloads that a device has open")
      ->capture_default_str();
  app.add_option("--slots", costs.slots, "leases of a device")->capture_default_str();
  std::string recorded;
  app.add_option("--recorded", recorded, "kernels as they were tuned (tests/gpu/replay_tuning.py)");
  app.add_flag("!--no-variants", costs.variants, "all candidates of those are tried");
  CLI11_PARSE(app, argc, argv);
  if (!recorded.empty()) {
    std::ifstream file(recorded);
    work.recorded = read_kernels(file);
    if (work.recorded.empty()) return fmt::print(stderr, "no kernels in {}\n", recorded), 2;
    work.programs = 0;
    for (const RecordedKernel& kernel : work.recorded)
      work.programs = std::max(work.programs, kernel.program + 1);
  }
  for (const std::string& name : shapes) {
    const FleetShape shape = parse_shape(name);
    if (shape.devices == 0) return fmt::print(stderr, "'{}' is no fleet\n", name), 2;
    const FleetFigures f = tune(shape, work, costs);
    if (json)
      fmt::print(
          "{{\"fleet\":\"{}\",\"seconds\":{:.2f},\"leases\":{},\"candidates\":{},\"builds\":{},"
          "\"opens\":{},\"busy\":{:.3f},\"device_s\":{:.2f},\"waited_s\":{:.2f},\"compile_s\":{:."
          "1f},"
          "\"compiling\":{:.3f},\"core_cpu_s\":{:.3f},\"answers\":{}}}\n",
          name, f.seconds, f.leases, f.candidates, f.builds, f.opens, f.busy, f.device_s,
          f.waited_s, f.compile_s, f.compiling, f.core_cpu_s, f.answers);
    else
      fmt::print(
          "{:8} {:6.2f} s  {} leases of {} candidates, {} opens  device busy {:.0f} % ({:.1f} s), "
          "waited {:.1f} s  {} builds, {:.0f} s, compilers busy {:.0f} %  core {:.2f} s\n",
          name, f.seconds, f.leases, f.candidates, f.opens, 100 * f.busy, f.device_s, f.waited_s,
          f.builds, f.compile_s, 100 * f.compiling, f.core_cpu_s);
  }
  return 0;
}
