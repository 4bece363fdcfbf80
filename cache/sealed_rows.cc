#include "cache/sealed_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

static_assert(std::endian::native == std::endian::little,
              "samples are stored as they lie in memory");

template <class T>
std::vector<T> values_in(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

constexpr std::string_view kWorkloadMember = ",\"workload_text\":";  // in no string: its quotes

// The member that kernel_to_text() adds at the end. kCorruption.
Result<std::string> workload_text_in(std::string_view kernel) {
  const size_t at = kernel.rfind(kWorkloadMember);
  if (at == std::string_view::npos) return std::string();
  const auto json = nlohmann::json::parse("{" + std::string(kernel.substr(at + 1)), nullptr, false);
  if (json.is_discarded() || !json["workload_text"].is_string())
    return fail(Code::kCorruption, "index: not a workload's text");
  return json["workload_text"].get<std::string>();
}

}  // namespace

std::string kernel_to_text(const StoredKernel& stored) {
  std::string text = kernel_to_json(stored.kernel);
  if (stored.workload_text.empty() || stored.workload_text.size() > kMaxWorkloadBytes) return text;
  const std::string member = nlohmann::json(stored.workload_text)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (nlohmann::json::parse(member) != stored.workload_text) return text;  // it is no UTF-8
  text.pop_back();                                                         // '}'
  return text.append(kWorkloadMember).append(member) + "}";
}

std::string target_to_text(const Target& target) {
  return fmt::format("{}|{}{}{}|{}", target.to_string(), target.units,
                     target.toolkit.empty() ? "" : " ", target.toolkit, target.device_model);
}

Result<Target> target_from_text(std::string_view text) {
  const size_t first = text.find('|'), second = text.find('|', first + 1);
  if (second == std::string_view::npos) return fail(Code::kCorruption, "index: not a target");
  TRY(Target target, Target::parse(text.substr(0, first)));
  const std::string_view facts = text.substr(first + 1, second - first - 1);
  const size_t units_end = std::min(facts.find(' '), facts.size());
  if (!read_number(facts.substr(0, units_end), target.units))
    return fail(Code::kCorruption, "index: not a target");
  if (units_end < facts.size()) target.toolkit = facts.substr(units_end + 1);
  target.device_model = text.substr(second + 1);
  return target;
}

std::string joined(const std::vector<Digest>& digests) {
  std::string bytes;
  for (const Digest& digest : digests)
    bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return bytes;
}

std::vector<Digest> digests_in(std::string_view bytes) {
  return values_in<Digest>(bytes);
}

std::string_view as_bytes(const std::vector<double>& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(double)};
}

std::vector<double> samples_in(std::string_view bytes) {
  return values_in<double>(bytes);
}

std::string_view as_bytes(const std::vector<int64_t>& sizes) {
  return {reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t)};
}

std::vector<int64_t> sizes_in(std::string_view bytes) {
  return values_in<int64_t>(bytes);
}

// v2 has an audience; everybody's keep their seal from before there were any.
Digest seal_program(const Digest& key, std::string_view manifest, std::string_view blobs,
                    std::string_view audience) {
  Hasher hasher(audience.empty() ? "kiln.index.program.v1" : "kiln.index.program.v2");
  hasher.add(key).add(manifest).add(blobs);
  if (!audience.empty()) hasher.add(audience);
  return hasher.finish();
}

Digest seal_kernel(const Digest& key, std::string_view kernel, std::string_view target) {
  return Hasher("kiln.index.kernel.v1").add(key).add(kernel).add(target).finish();
}

// v2 has a calibration time (sentinel_us), v3 also the version of the template, v4 also the owner. A
// record keeps its seal from before there were any (index versions 3 to 5), so that a migration need
// not seal a million rows anew.
Digest seal_record(const TuningRecord& record) {
  const bool has_owner = !record.owner.empty();
  const bool has_version = has_owner || record.template_version != 0;
  const bool has_sentinel = has_version || record.sentinel_us != 0;
  Hasher hasher(has_owner      ? "kiln.index.record.v4"
                : has_version  ? "kiln.index.record.v3"
                : has_sentinel ? "kiln.index.record.v2"
                               : "kiln.index.record.v1");
  hasher.add(record.kernel_key)
      .add(record.workload)
      .add(target_to_text(record.target))
      .add(record.schedule.to_string())
      .add(static_cast<int64_t>(record.verdict))
      .add(record.log)
      .add(as_bytes(record.measurement.samples_us))
      .add(record.binary)
      .add(record.worker)
      .add(record.taken_at_ms)
      .add(static_cast<int64_t>(record.seed));
  if (has_sentinel) hasher.add(std::bit_cast<int64_t>(record.sentinel_us));
  if (has_version) hasher.add(int64_t{record.template_version});
  if (has_owner) hasher.add(record.owner);
  return hasher.finish();
}

tl::unexpected<Error> damaged(std::string_view what, const Digest& key) {
  return fail(Code::kCorruption, fmt::format("the row of {} {} is damaged", what, key.short_hex()));
}

Result<StoredKernel> read_kernel(const Digest& key, std::string_view kernel,
                                 std::string_view target, const Digest& seal) {
  if (seal != seal_kernel(key, kernel, target)) return damaged("kernel", key);
  Result<ProgramKernel> read = kernel_from_json(kernel);
  Result<Target> tuned_on = target_from_text(target);
  Result<std::string> workload = workload_text_in(kernel);
  if (!read || !tuned_on || !workload) return damaged("kernel", key);
  return StoredKernel{*std::move(read), *std::move(tuned_on), *std::move(workload)};
}

Result<TuningRecord> check_record(TuningRecord record, const Digest& seal) {
  TRY(record.verdict, parse_verdict(to_string(record.verdict)));
  if (seal != seal_record(record)) return damaged("a record of", record.kernel_key);
  return record;
}

std::vector<Digest> keys_in(std::string_view manifest) {
  constexpr std::string_view kField = "\"key\":\"";
  constexpr size_t kDigits = 2 * sizeof(Digest);
  std::vector<Digest> keys;
  for (size_t at = manifest.find(kField); at != std::string_view::npos;
       at = manifest.find(kField, at)) {
    at += kField.size();
    if (const auto key = Digest::parse(manifest.substr(at, kDigits))) keys.push_back(*key);
  }
  return keys;
}

std::string json_member(const char* name, const std::string& value) {
  return nlohmann::json(name).dump() + ":" + nlohmann::json(value).dump();
}

std::vector<Schedule> nearest_first(const std::vector<WinnerOfSizes>& winners,
                                    const std::vector<int64_t>& sizes) {
  std::vector<std::pair<double, Schedule>> found;
  for (const WinnerOfSizes& winner : winners) {
    const double away = distance(winner.sizes, sizes);
    Result<Schedule> schedule = Schedule::parse(winner.schedule);
    if (schedule && std::isfinite(away)) found.emplace_back(away, *std::move(schedule));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Schedule> schedules;
  for (auto& [away, schedule] : found)
    if (std::find(schedules.begin(), schedules.end(), schedule) == schedules.end())
      schedules.push_back(std::move(schedule));
  return schedules;
}

}  // namespace kiln
