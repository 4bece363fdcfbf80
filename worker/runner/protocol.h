// The conversation between kiln-worker and kiln-runner, over one socket pair. The worker asks, the
// runner answers; one request at a time. Both ends validate: the runner may be full of a hostile
// kernel's damage, so nothing it says is taken on trust.
//
// A frame, little-endian:   u32 size | u8 kind | payload         size counts kind and payload
// In payloads: integers and doubles as 8 bytes, strings as length and bytes, lists as length and
// items, digests as strings of 32 bytes. Kinds are the enum values below.
//
//   PrepareDevice  -> DevicePrepared   opens the GPU, loads the runner's own kernels on it
//   OpenWorkload   -> Opened           graph and seed: inputs are made, the reference computed
//   VerifyKernel   -> Verified         loads an artifact into a slot, launches and compares it
//   RaceKernel     -> Raced            times one verified slot against the incumbent
//   TimeFinalists  -> FinalistsTimed   times verified slots in interleaved rounds
//   MeasureCalibration -> CalibrationMeasured  times the device's own fixed kernel
//   LaunchKernel   -> Launched         loads an artifact and launches it, on inputs alone
//   JudgeOutputs   -> Verified         compares what another runner's launch left
//   CompileSource  -> CompiledObject   source text becomes a binary (--role compile)
//   LowerCandidate -> Lowered          a workload and a schedule become source text (--role lower)
//   CancelCompile  -> nothing          the compile in progress, if any, fails; so the worker may
//                                      send it while it waits for the answer
//   any            -> Progress* first  the runner is alive: at most one each kProgressPeriodMs
//   any            -> Failed           the request cannot be served; says why
//   any            -> Leaving first    the reply that follows is the runner's last: its device is
//                                      lost to it, and another runner is needed for what comes
//
// Values and pure functions, but for send_frame and receive_frame, which carry the frames.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler_core/compile/nvrtc.h"
#include "compiler_core/plan/workload.h"
#include "compiler_core/program/library_call.h"
#include "compiler_core/runtime/cuda_device.h"
#include "compiler_core/tune/measurement.h"
#include "compiler_core/tune/schedule.h"

namespace kiln::runner {

inline constexpr size_t kMaxFrameBytes = 64 << 20;
inline constexpr uint64_t kMaxSlots = 64;
inline constexpr uint64_t kMaxSamples = 1 << 16;  // a list of samples
inline constexpr uint64_t kMaxLibraries = 16;
inline constexpr uint64_t kMaxLaunches = 1 << 14;  // of one LaunchKernel
inline constexpr uint64_t kMaxOutputs = 512;
inline constexpr size_t kMaxJudgedBytes = kMaxFrameBytes / 2;  // of all outputs together
inline constexpr size_t kMaxLogBytes = 4096;
inline constexpr int64_t kProgressPeriodMs = 500;

struct PrepareDevice {
  std::string binary;  // of utility_kernels_source(); empty: to learn of the device alone
  Digest digest;       // of `binary`
};
struct OpenWorkload {
  uint64_t seed = 0;
  std::string graph_text;
  // Inputs alone, for LaunchKernel, drawn as another runner's Opened says: this one's kernel finds
  // no right results in its memory.
  bool inputs_only = false;
  uint64_t floats = 0;
};
struct VerifyKernel {
  uint64_t slot = 0;
  std::string recipe_json;
  std::string binary;
  Digest digest;  // of the binary, as it was compiled
};
struct RaceKernel {
  uint64_t slot = 0;
  MeasurementPolicy policy;
  double incumbent_us = 0;
};
struct TimeFinalists {
  std::vector<uint64_t> slots;
  MeasurementPolicy policy;
};
struct LaunchKernel {
  std::string recipe_json;
  std::string binary;
  Digest digest;  // of the binary
  uint64_t launches = 1;
};
struct JudgeOutputs {
  std::vector<std::string> outputs;  // the bytes of each, at the measured sizes
};
struct CompileSource {
  std::string target;  // Target::to_string
  std::string text;
};
struct LowerCandidate {
  std::string graph_text;
  Family family = Family::kPointwise;
  Schedule schedule;
  Target target;
};
struct CancelCompile {};
struct MeasureCalibration {};
using Request = std::variant<OpenWorkload, VerifyKernel, RaceKernel, TimeFinalists, CompileSource,
                             CancelCompile, PrepareDevice, MeasureCalibration, LowerCandidate,
                             LaunchKernel, JudgeOutputs>;

struct Opened {
  double reference_ms = 0;  // what the reference took, when it was computed
  double open_ms = 0;       // all of this request; little for a workload that was open before
  uint64_t floats = 0;      // how its inputs are drawn
};
struct Launched {
  std::vector<std::string> outputs;  // the bytes that the last launch left in each
};
struct DevicePrepared {
  CudaFacts facts;
  std::vector<LibraryVersion> libraries;  // that it can call; of the device alone
};
struct Verified {
  Verdict verdict = Verdict::kOk;
  std::string log;
};
struct Raced {
  bool dropped = false;
  Measurement measurement;
  std::string note;  // what disturbed the clock, for the log; mostly empty
};
struct FinalistsTimed {
  std::vector<Measurement> measurements;  // one a slot, in the order asked
  std::string note;                       // as Raced's
};
struct CompiledObject {
  std::string binary;
  KernelResources resources;
};
struct Lowered {
  bool is_source = true;
  std::string recipe_json;
  std::string bytes;  // the source's text, or a finished binary
};
struct CalibrationMeasured {
  double us = 0;  // the least of a few runs
};
struct Progress {};
struct Leaving {};
struct Failed {
  Error error;
};
using Reply = std::variant<Opened, Verified, Raced, FinalistsTimed, CompiledObject, DevicePrepared,
                           CalibrationMeasured, Progress, Leaving, Failed, Lowered, Launched>;

// The whole frame. REQUIRES: it fits kMaxFrameBytes.
std::string encode(const Request& request);
std::string encode(const Reply& reply);
// `body` is a frame without its size. kCorruption on anything that encode would not have written.
Result<Request> decode_request(std::string_view body);
Result<Reply> decode_reply(std::string_view body);

// Frames over a connected stream socket, whatever is in them. Thread-safe as the socket is: one
// sender, one receiver.
//
// Writes a whole frame. kUnavailable when the other end is gone, kDeadlineExceeded when it does not
// read for `timeout_ms` (negative: no limit).
Status send_frame(int socket, std::string_view frame, int64_t timeout_ms);
// The body of the next frame. kUnavailable when the other end closed, kDeadlineExceeded when it is
// not complete within `timeout_ms` (negative: no limit), kCorruption when its size is too large.
Result<std::string> receive_frame(int socket, int64_t timeout_ms);

}  // namespace kiln::runner
