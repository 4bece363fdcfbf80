#include "client/cli/gpu_run.h"

#include "client/cli/device_tensors.h"
#include "client/compiled_program.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/tune/measurement.h"

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Device = std::shared_ptr<const CudaDevice>;

constexpr int kWarmUpLaunches = 3;
constexpr int kBatch = 10;  // launches put on the stream before anybody waits
constexpr size_t kMostSamples = 1000;

// Batches of launches with events between them, until there are enough samples.
Result<double> time_launches(const Device& device, const std::function<Status()>& launch,
                             int runs) {
  for (int i = 0; i < kWarmUpLaunches; ++i) TRY_STATUS(launch());
  std::vector<CudaEvent> events;
  for (int i = 0; i <= kBatch; ++i) {
    TRY(CudaEvent event, CudaEvent::create(device));
    events.push_back(std::move(event));
  }
  std::vector<double> samples_us;
  const auto stop = Clock::now() + std::chrono::milliseconds(200);
  const size_t wanted = runs > 0 ? static_cast<size_t>(runs) : kMostSamples;
  while (samples_us.empty() || (samples_us.size() < wanted && (runs > 0 || Clock::now() < stop))) {
    TRY_STATUS(events[0].record(nullptr));
    for (int i = 0; i < kBatch; ++i) {
      TRY_STATUS(launch());
      TRY_STATUS(events[static_cast<size_t>(i) + 1].record(nullptr));
    }
    TRY_STATUS(device->synchronize(nullptr));
    for (size_t i = 0; i < kBatch; ++i) {
      TRY(const double us, events[i + 1].us_since(events[i]));
      samples_us.push_back(us);
    }
  }
  return Measurement{std::move(samples_us)}.median_us();
}

Result<GpuRun> run_tensors(const CompiledProgram& program, std::span<const Tensor* const> inputs,
                           int runs) {
  const Device device = device_of(program);
  GpuRun run;
  TRY(const std::vector<int64_t> symbols, program.bind(inputs));
  TRY(run.outputs, program.make_outputs(symbols));
  const auto uploading = Clock::now();
  TRY(const DeviceTensors in, DeviceTensors::copies_of(device, inputs));
  TRY(const DeviceTensors out, DeviceTensors::sized_as(device, run.outputs));
  run.upload_ms = ms_since(uploading);

  const auto launching = Clock::now();
  const auto launch = [&] {
    return program.launch(in.pointers(), out.pointers(), nullptr, symbols);
  };
  TRY_STATUS(launch());
  TRY_STATUS(device->synchronize(nullptr));
  run.first_launch_ms = ms_since(launching);
  run.first_finished = Clock::now();

  for (size_t i = 0; i < run.outputs.size(); ++i)
    TRY_STATUS(device->copy_to_host(run.outputs[i].bytes(), out.pointers()[i]));
  TRY(run.median_us, time_launches(device, launch, runs));
  return run;
}

}  // namespace

Result<GpuRun> run_on_gpu(const CompiledProgram& program, std::span<const Tensor* const> inputs,
                          int runs) {
  auto run = run_tensors(program, inputs, runs);
  return run ? std::move(run) : fail(refused_by_device(std::move(run).error()));
}

}  // namespace kiln::cli
