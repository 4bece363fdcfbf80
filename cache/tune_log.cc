#include "cache/tune_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler_core/program/cubin_resources.h"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

std::string time_text(int64_t ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

Json us_or_null(double us) {
  return us > 0 ? Json(us) : Json();
}
Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

constexpr auto kColumns = std::to_array<TuneLogColumn>({
    {"taken_at", "string", "when it was measured: UTC, to the millisecond"},
    {"taken_at_ms", "int64", "the same as Unix time"},
    {"kernel_key", "string", "what was tuned: workload, target, mode and how it is measured"},
    {"workload", "string", "digest of the computation"},
    {"target", "string", "backend and architecture: cpu:x86-64-v4, cuda:sm_90a"},
    {"device_model", "string", "of the worker's device; null: not named"},
    {"units", "int64", "its cores or streaming multiprocessors"},
    {"toolkit", "string", "compiler and its version; null: not said"},
    {"template", "string", "the kernel template"},
    {"template_version", "int64", "its version then; null: older than this field"},
    {"schedule", "string", "the candidate: the template and its decisions"},
    {"verdict", "string", "ok, compile_failed, wrong_result, out_of_bounds, timed_out, ..."},
    {"won", "bool", "whether the kernel that is stored now has this schedule; null: none is"},
    {"samples", "int64", "how often it was timed"},
    {"median_us", "double", "of the samples; null: it was not timed"},
    {"min_us", "double", "the same"},
    {"p90_us", "double", "the same"},
    {"spread_us", "double", "interquartile range of the samples"},
    {"sentinel_us", "double",
     "calibration kernel's time there and then: divide by it to compare "
     "devices of one model; null: not known"},
    {"worker", "string", "that measured it"},
    {"owner", "string", "whose key the worker had; null: it had none"},
    {"binary", "string", "digest of what was run; null: nothing was compiled"},
    {"seed", "string", "of the random inputs: 64 bits, which int64 does not hold"},
    {"log", "string", "why, for another verdict than ok; null: nothing was said"},
    {"registers", "int64",
     "that a thread takes; null: no GPU, or this record is not of the compile"},
    {"local_bytes", "int64", "that a thread takes: spilled registers, and arrays; null: the same"},
    {"shared_bytes", "int64", "of shared memory that a block takes; null: the same"},
});

}  // namespace

std::vector<ListedRecord> fitting(
    const RecordQuery& wanted, std::vector<TuningRecord> read, std::span<const Digest> kernels,
    const std::function<std::optional<std::string>(const Digest&)>& schedule_of) {
  std::vector<ListedRecord> fit;
  std::map<Digest, std::optional<std::string>> winners;
  for (TuningRecord& record : read) {
    const bool is_wanted =
        record.taken_at_ms >= wanted.since_ms &&
        (wanted.worker.empty() || record.worker == wanted.worker) &&
        (wanted.template_name.empty() || record.schedule.template_name == wanted.template_name) &&
        (!wanted.kernel || record.kernel_key == *wanted.kernel) &&
        (!wanted.program || std::ranges::find(kernels, record.kernel_key) != kernels.end());
    if (!is_wanted) continue;
    auto known = winners.find(record.kernel_key);
    if (known == winners.end())
      known = winners.emplace(record.kernel_key, schedule_of(record.kernel_key)).first;
    ListedRecord& listed = fit.emplace_back();
    if (known->second) listed.won = *known->second == record.schedule.to_string();
    listed.record = std::move(record);
  }
  return fit;
}

std::span<const TuneLogColumn> tune_log_columns() {
  return kColumns;
}

Json tune_log_row(const ListedRecord& listed) {
  const TuningRecord& record = listed.record;
  const Measurement& measured = record.measurement;
  const auto resources = parse_cubin_resources(record.log);
  return {
      {"taken_at", time_text(record.taken_at_ms)},
      {"taken_at_ms", record.taken_at_ms},
      {"kernel_key", record.kernel_key.hex()},
      {"workload", record.workload.hex()},
      {"target", record.target.to_string()},
      {"device_model", text_or_null(record.target.device_model)},
      {"units", record.target.units},
      {"toolkit", text_or_null(record.target.toolkit)},
      {"template", record.schedule.template_name},
      {"template_version", record.template_version > 0 ? Json(record.template_version) : Json()},
      {"schedule", record.schedule.to_string()},
      {"verdict", to_string(record.verdict)},
      {"won", listed.won ? Json(*listed.won) : Json()},
      {"samples", measured.samples_us.size()},
      {"median_us", us_or_null(measured.median_us())},
      {"min_us", us_or_null(measured.quantile_us(0))},
      {"p90_us", us_or_null(measured.quantile_us(0.9))},
      {"spread_us", measured.samples_us.empty() ? Json() : Json(measured.spread_us())},
      {"sentinel_us", us_or_null(record.sentinel_us)},
      {"worker", record.worker},
      {"owner", text_or_null(record.owner)},
      {"binary", record.binary == Digest{} ? Json() : Json(record.binary.hex())},
      {"seed", std::to_string(record.seed)},
      {"log", resources ? Json() : text_or_null(record.log)},
      {"registers", resources ? Json(resources->registers) : Json()},
      {"local_bytes", resources ? Json(resources->local_bytes) : Json()},
      {"shared_bytes", resources ? Json(resources->shared_bytes) : Json()}};
}

}  // namespace kiln
