// Kernels, programs and records for the tests of the cache, made from a number: the same number
// gives the same content, so that a test can say what it must find.
#pragma once

#include <fmt/core.h>

#include <future>

#include "cache/kernel_cache.h"

namespace kiln::samples {

inline Digest key(std::string_view kind, int n) {
  return Digest::of(fmt::format("{} {}", kind, n));
}

// Of varied size, up to some 40 KB.
inline std::string blob(int n) {
  std::string bytes = fmt::format("blob {}:", n);
  const size_t size = 64 + static_cast<size_t>(n) * 7919 % 40'000;
  while (bytes.size() < size)
    bytes += static_cast<char>(bytes.size() * 31 + static_cast<size_t>(n));
  return bytes;
}

inline StoredKernel kernel(int n) {
  StoredKernel stored;
  stored.tuned_on = {Backend::kCpu, "x86-64-v3", "a | strange \"model\"", 2, {}};
  ProgramKernel& kernel = stored.kernel;
  kernel.workload = key("workload", n);
  kernel.key = key("kernel", n);
  kernel.family = "pointwise";
  kernel.schedule = fmt::format("cpu.pointwise vector={}", 1 + n);
  kernel.blob = Digest::of(blob(n));
  const TensorSpec spec{DType::kF32, {256}};
  kernel.recipe = {{spec}, {spec}, {{"run", 4}}, 0, 0};
  kernel.report = {10, 8, 2, 1.5, 3.0};
  kernel.templates = {{"cpu.pointwise", 1 + n}, {"custom", 1}};
  return stored;
}

// One kernel, from its input to its output.
inline Program program(int n) {
  Program program;
  program.key = key("program", n);
  program.graph = key("graph", n);
  program.target = {Backend::kCpu, "x86-64-v3", "model", 2, {}};
  program.mode = Mode::kMaxAutotune;
  program.kernels = {kernel(n).kernel};
  const TensorSpec spec{DType::kF32, {256}};
  program.buffers = {{Buffer::Kind::kInput, 0, spec, 0}, {Buffer::Kind::kOutput, 0, spec, 0}};
  program.launches = {{0, {0, 1}}};
  program.output_buffers = {1};
  return program;
}

// The n-th record of one kernel key.
inline TuningRecord record(int n) {
  TuningRecord record;
  record.kernel_key = key("kernel", 0);
  record.workload = key("workload", 0);
  record.target = {Backend::kCpu, "x86-64-v4", "model", 2, {}};
  record.schedule = {"cpu.pointwise", {{"vector", n}}};
  record.verdict = n % 3 == 0 ? Verdict::kWrongResult : Verdict::kOk;
  record.log = n % 3 == 0 ? "differs at 7" : "";
  record.measurement.samples_us = {1.0 + n, 2.5, 3.25};
  record.binary = Digest::of(blob(n));
  record.worker = "worker-1";
  record.taken_at_ms = 1'700'000'000'000 + n;
  record.seed = 0xfedcba9876543210u + static_cast<uint64_t>(n);
  record.sentinel_us = n % 2 == 0 ? 100.25 + n : 0;
  record.template_version = n % 4 == 1 ? 0 : 1 + n;
  return record;
}

// `wait([&](auto done) { cache.put_blob(bytes, done); })`: the put's answer.
template <class Put>
Status wait(Put put) {
  auto answer = std::make_shared<std::promise<Status>>();
  put([answer](Status status) { answer->set_value(std::move(status)); });
  return answer->get_future().get();
}

inline Status put_blob(Store& store, int n) {
  return wait([&](auto done) { store.put_blob(blob(n), done); });
}
inline Status put_kernel(Store& store, int n) {
  return wait([&](auto done) { store.put_kernel(kernel(n), done); });
}
inline Status put_program(Store& store, int n) {
  return wait([&](auto done) { store.put_program(program(n), done); });
}
inline Status put_record(Store& store, int n) {
  return wait([&](auto done) { store.put_record(record(n), done); });
}
inline Status put_all(Store& store, int n) {
  TRY_STATUS(put_blob(store, n));
  TRY_STATUS(put_kernel(store, n));
  return put_program(store, n);
}

// What a look-up answers, whenever it does.
template <class T, class LookUp>
Result<T> answer_of(LookUp look_up) {
  auto answer = std::make_shared<std::promise<Result<T>>>();
  look_up([answer](Result<T> found) { answer->set_value(std::move(found)); });
  return answer->get_future().get();
}
inline Result<StoredProgram> look_up_program(Store& store, int n) {
  return answer_of<StoredProgram>(
      [&](auto then) { store.look_up_program(key("program", n), then); });
}
inline Result<std::string> look_up_blob(Store& store, int n) {
  return answer_of<std::string>([&](auto then) { store.look_up_blob(Digest::of(blob(n)), then); });
}

// Where the cache in `directory` keeps blob n.
inline Path blob_path(const Path& directory, int n) {
  const std::string name = Digest::of(blob(n)).hex();
  return directory / "blobs" / name.substr(0, 2) / name;
}

inline void flip_one_bit(const Path& path) {
  std::string bytes = read_file(path).value();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  (void)write_file(path, bytes);
}

}  // namespace kiln::samples
