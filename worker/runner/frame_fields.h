// The kinds of frames between worker and runner, and their fields as bytes (protocol.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "compiler_core/base/check.h"
#include "worker/runner/protocol.h"

namespace kiln::runner {

static_assert(std::endian::native == std::endian::little, "frames are written as memory is");

// Sent; never renumbered while a worker and a runner of two builds could meet.
enum class Kind : uint8_t {
  kOpenWorkload = 1,
  kVerifyKernel = 2,
  kRaceKernel = 3,
  kTimeFinalists = 4,
  kPrepareDevice = 5,
  kCompileSource = 8,
  kCancelCompile = 9,
  kMeasureCalibration = 10,
  kLowerCandidate = 11,
  kLaunchKernel = 12,
  kJudgeOutputs = 13,
  kOpened = 65,
  kVerified = 66,
  kRaced = 67,
  kFinalistsTimed = 68,
  kProgress = 69,
  kFailed = 70,
  kDevicePrepared = 71,
  kCompiledObject = 72,
  kLeaving = 73,
  kCalibrationMeasured = 74,
  kLowered = 75,
  kLaunched = 76,
};

class Writer {
 public:
  explicit Writer(Kind kind) : bytes_(sizeof(uint32_t), '\0') {
    bytes_.push_back(static_cast<char>(kind));
  }
  Writer& u64(uint64_t value) { return raw(&value, sizeof value); }
  Writer& i64(int64_t value) { return raw(&value, sizeof value); }
  Writer& f64(double value) { return raw(&value, sizeof value); }
  Writer& text(std::string_view value) {
    u64(value.size());
    bytes_.append(value);
    return *this;
  }
  Writer& digest(const Digest& value) {
    return text({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
  }
  std::string finish() {
    const uint32_t size = static_cast<uint32_t>(bytes_.size() - sizeof(uint32_t));
    CHECK(bytes_.size() <= kMaxFrameBytes, "the caller bounds what it sends");
    std::memcpy(bytes_.data(), &size, sizeof size);
    return std::move(bytes_);
  }

 private:
  Writer& raw(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string bytes_;
};

// Reads what Writer wrote. The first thing out of bounds sticks; done() tells.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  uint64_t u64(uint64_t max) {
    const uint64_t value = raw<uint64_t>();
    if (value > max) ok_ = false;
    return ok_ ? value : 0;
  }
  int64_t i64(int64_t min, int64_t max) {
    const int64_t value = raw<int64_t>();
    if (value < min || value > max) ok_ = false;
    return ok_ ? value : min;
  }
  double f64(double min) {
    const double value = raw<double>();
    if (!std::isfinite(value) || value < min) ok_ = false;
    return ok_ ? value : min;
  }
  std::string text(size_t max) {
    const uint64_t size = u64(max);
    if (size > rest_.size()) ok_ = false;
    if (!ok_) return {};
    std::string value(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return value;
  }
  Digest digest() {
    Digest digest;
    const std::string bytes = text(digest.bytes.size());
    if (bytes.size() != digest.bytes.size()) ok_ = false;
    if (ok_) std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
    return digest;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  template <class T>
  T raw() {
    T value{};
    if (rest_.size() < sizeof value) ok_ = false;
    if (!ok_) return value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace kiln::runner
