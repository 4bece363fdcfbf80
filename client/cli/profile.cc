#include "client/cli/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "client/cli/device_tensors.h"
#include "client/compiled_program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln::cli {
namespace {

constexpr int kWarmUpCalls = 3, kCalls = 9;
constexpr size_t kListed = 10;
constexpr double kBetweenCallsUs = 10;  // on the timeline, where calls stand one after the other

// Launches that ran side by side share their time.
double time_of(size_t launch, const std::vector<LaunchTime>& call) {
  for (const LaunchTime& time : call)
    if (std::ranges::find(time.launches, launch) != time.launches.end())
      return (time.end_us - time.begin_us) / static_cast<double>(time.launches.size());
  return 0;
}

double end_of(const std::vector<LaunchTime>& call) {
  return call.empty() ? 0 : call.back().end_us;
}

DevicePeak peak_of(const Target& target) {
  return target.backend == Backend::kCuda ? cuda_peak(target) : host_peak(target);
}

// Describes the launches as far as the exported graph tells: it has the program's launches in its
// order where both were planned alike.
void describe(const CompiledProgram& compiled, const ExportedProgram& exported,
              std::span<const int64_t> symbols, Profile& profile) {
  const Program& program = compiled.program();
  for (const Launch& launch : program.launches) {
    const ProgramKernel& kernel = program.kernels[static_cast<size_t>(launch.kernel)];
    profile.launches.push_back({std::string(kernel.family), kernel.schedule, {}, {}, 0, 0, 0, 0});
  }
  const Target& target = program.target;
  const auto explained = explain(exported, target, program.mode, {&program, 1}, peak_of(target));
  if (!explained || explained->launches.size() != program.launches.size()) return;
  const bool same_sizes = std::ranges::equal(explained->sizes, symbols);
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const ExplainedLaunch& launch = explained->launches[i];
    Profile::Kernel& kernel = profile.launches[i];
    kernel.ops = launch.fused_ops;
    kernel.sources = launch.sources;
    if (!same_sizes) continue;
    kernel.bytes = launch.cost.bytes;
    kernel.flops = launch.cost.flops;
    kernel.floor_us = launch.floor_us;
  }
}

nlohmann::ordered_json facts_of(const Profile::Kernel& kernel) {
  nlohmann::ordered_json facts = {{"kernel", kernel.name}, {"schedule", kernel.schedule}};
  if (!kernel.ops.empty()) facts["ops"] = kernel.ops;
  if (!kernel.sources.empty()) facts["sources"] = kernel.sources;
  if (kernel.bytes > 0) facts["bytes"] = kernel.bytes;
  if (kernel.flops > 0) facts["flops"] = kernel.flops;
  if (kernel.floor_us > 0) facts["floor_us"] = kernel.floor_us;
  return facts;
}

double of_roofline(const Profile::Kernel& kernel) {
  return kernel.median_us > 0 ? kernel.floor_us / kernel.median_us : 0;
}
double gb_per_s(const Profile::Kernel& kernel) {
  return kernel.median_us > 0 ? static_cast<double>(kernel.bytes) / kernel.median_us / 1e3 : 0;
}

// An event of the Trace Event Format; `track`: a thread there.
nlohmann::ordered_json complete_event(const std::string& name, int track, double begin_us,
                                      double end_us) {
  return {{"name", name}, {"ph", "X"},      {"pid", 1},
          {"tid", track}, {"ts", begin_us}, {"dur", end_us - begin_us}};
}
nlohmann::ordered_json name_event(const char* what, int track, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", name}}}};
}

Result<Profile> profile_calls(const CompiledProgram& program, const ExportedProgram& exported,
                              std::span<const Tensor* const> inputs) {
  const auto device = place_of(program);
  if (device == nullptr) return fail(Code::kUnsupported, "the program is not loaded here");
  TRY(const std::vector<int64_t> symbols, program.bind(inputs));
  TRY(const std::vector<Tensor> results, program.make_outputs(symbols));
  TRY(const DeviceTensors in, DeviceTensors::copies_of(device, inputs));
  TRY(const DeviceTensors out, DeviceTensors::sized_as(device, results));

  Profile profile;
  profile.device = device->target().to_string();
  describe(program, exported, symbols, profile);
  for (int i = -kWarmUpCalls; i < kCalls; ++i) {
    TRY(auto call, profile_launches(program, in.pointers(), out.pointers(), symbols));
    if (i >= 0) profile.calls.push_back(std::move(call));
  }
  const auto median_of = [&](auto value) {
    Measurement over_calls;
    for (const auto& call : profile.calls) over_calls.samples_us.push_back(value(call));
    return over_calls.median_us();
  };
  for (size_t i = 0; i < profile.launches.size(); ++i)
    profile.launches[i].median_us = median_of([i](const auto& call) { return time_of(i, call); });
  profile.call_us = median_of(end_of);
  return profile;
}

}  // namespace

Result<Profile> take_profile(const CompiledProgram& program, const ExportedProgram& exported,
                             std::span<const Tensor* const> inputs) {
  auto profile = profile_calls(program, exported, inputs);
  return profile ? std::move(profile) : fail(refused_by_device(std::move(profile).error()));
}

nlohmann::ordered_json trace_json(const std::string& file, const Profile& profile) {
  constexpr int kLaunchTrack = 1, kCallTrack = 2;
  auto events =
      nlohmann::ordered_json::array({name_event("process_name", 0, file + " on " + profile.device),
                                     name_event("thread_name", kLaunchTrack, "launches"),
                                     name_event("thread_name", kCallTrack, "calls")});
  double offset_us = 0;
  for (const auto& call : profile.calls) {
    events.push_back(complete_event("call", kCallTrack, offset_us, offset_us + end_of(call)));
    for (const LaunchTime& time : call) {
      for (const size_t launch : time.launches) {
        const Profile::Kernel& kernel = profile.launches[launch];
        auto event = complete_event(fmt::format("{} #{}", kernel.name, launch), kLaunchTrack,
                                    offset_us + time.begin_us, offset_us + time.end_us);
        event["args"] = facts_of(kernel);
        events.push_back(std::move(event));
      }
    }
    offset_us += end_of(call) + kBetweenCallsUs;
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
}

nlohmann::ordered_json profile_json(const Profile& profile) {
  auto launches = nlohmann::ordered_json::array();
  for (size_t i = 0; i < profile.launches.size(); ++i) {
    const Profile::Kernel& kernel = profile.launches[i];
    nlohmann::ordered_json launch = {{"launch", i}};
    launch.update(facts_of(kernel));
    launch["us"] = kernel.median_us;
    launch["share"] = profile.call_us > 0 ? kernel.median_us / profile.call_us : 0;
    if (kernel.bytes > 0) launch["gb_per_s"] = gb_per_s(kernel);
    if (kernel.floor_us > 0) launch["of_roofline"] = of_roofline(kernel);
    launches.push_back(std::move(launch));
  }
  return {
      {"device", profile.device}, {"call_us", profile.call_us}, {"launches", std::move(launches)}};
}

std::string profile_text(const Profile& profile) {
  std::vector<size_t> order(profile.launches.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return profile.launches[i].median_us; });
  std::string text =
      fmt::format("  {} launch{}, {:.1f} us a call on {}\n", profile.launches.size(),
                  profile.launches.size() == 1 ? "" : "es", profile.call_us, profile.device);
  for (size_t k = 0; k < std::min(order.size(), kListed); ++k) {
    const Profile::Kernel& kernel = profile.launches[order[k]];
    text += fmt::format("  #{:<4} {:<17} {:9.1f} us {:5.1f} %", order[k], kernel.name,
                        kernel.median_us, 100 * kernel.median_us / std::max(profile.call_us, 1e-9));
    if (kernel.bytes > 0) text += fmt::format("  {:7.1f} GB/s", gb_per_s(kernel));
    if (kernel.floor_us > 0)
      text += fmt::format("  {:3.0f} % of the roofline", 100 * of_roofline(kernel));
    text += fmt::format("  {}\n", fmt::join(kernel.ops, ", "));
  }
  if (order.size() > kListed)
    text += fmt::format("  and {} that take less\n", order.size() - kListed);
  return text;
}

}  // namespace kiln::cli
