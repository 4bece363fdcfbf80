// What the fault shim (shim.cc, preloaded into Kiln's programs) and the tests that steer it share:
// the table of named points, and the board, a file that both map. The tests arm faults on it and
// read which points were passed; the shim counts, and strikes. Nothing of this is in Kiln's own
// programs.
//
// A point is a system call of one program on one kind of file or socket. Every point that
// docs/faults.md lists is here, in the same order, and a test compares the two.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kiln::testing {

enum class FaultCall : uint8_t {
  kMakeDirectory,  // mkdir
  kCreate,         // open with O_CREAT
  kRead,           // read, pread
  kWrite,          // write, pwrite
  kSync,           // fsync, fdatasync
  kRename,         // rename, link: by the new name
  kSpawn,          // posix_spawn, by the program's name
  kSend,           // on a "tcp" or "unix" socket
  kReceive,
};

struct FaultPoint {
  std::string_view name;
  const char* program;  // whose executable has this name
  FaultCall call;
  const char* subject;  // fnmatch pattern of the path, or the kind of socket
  bool publishes;       // on the way of a result to where it is durable or answered
  bool needs_restart;   // passed only by a process that finds the files of an earlier one
};

// clang-format off
inline constexpr auto kFaultPoints = std::to_array<FaultPoint>({
    // ---- The coordinator: blobs, then the index, then the answer ----
    {"coordinator.blob.directory", "kiln-coordinator", FaultCall::kMakeDirectory, "*/blobs/*", true, false},
    {"coordinator.blob.create", "kiln-coordinator", FaultCall::kCreate, "*/blobs/*.tmp.*", true, false},
    {"coordinator.blob.write", "kiln-coordinator", FaultCall::kWrite, "*/blobs/*.tmp.*", true, false},
    {"coordinator.blob.sync", "kiln-coordinator", FaultCall::kSync, "*/blobs/*.tmp.*", true, false},
    {"coordinator.blob.rename", "kiln-coordinator", FaultCall::kRename, "*/blobs/*", true, false},
    {"coordinator.blob.sync_directory", "kiln-coordinator", FaultCall::kSync, "*/blobs/*", true, false},
    {"coordinator.blob.read", "kiln-coordinator", FaultCall::kRead, "*/blobs/*", false, true},
    {"coordinator.log.write", "kiln-coordinator", FaultCall::kWrite, "*/index.sqlite-wal", true, false},
    {"coordinator.log.sync", "kiln-coordinator", FaultCall::kSync, "*/index.sqlite-wal", true, false},
    {"coordinator.log.read", "kiln-coordinator", FaultCall::kRead, "*/index.sqlite-wal", false, true},
    {"coordinator.index.write", "kiln-coordinator", FaultCall::kWrite, "*/index.sqlite", true, true},
    {"coordinator.index.sync", "kiln-coordinator", FaultCall::kSync, "*/index.sqlite", true, true},
    {"coordinator.index.read", "kiln-coordinator", FaultCall::kRead, "*/index.sqlite", false, true},
    {"coordinator.flights.write", "kiln-coordinator", FaultCall::kWrite, "*/flights.sqlite-wal", true, false},
    {"coordinator.flights.sync", "kiln-coordinator", FaultCall::kSync, "*/flights.sqlite-wal", true, false},
    {"coordinator.flights.fold", "kiln-coordinator", FaultCall::kWrite, "*/flights.sqlite", true, true},
    {"coordinator.flights.read", "kiln-coordinator", FaultCall::kRead, "*/flights.sqlite", false, true},
    {"coordinator.signing.create", "kiln-coordinator", FaultCall::kCreate, "*/ed25519.key.tmp.*", true, true},
    {"coordinator.signing.write", "kiln-coordinator", FaultCall::kWrite, "*/ed25519.key.tmp.*", true, true},
    {"coordinator.signing.sync", "kiln-coordinator", FaultCall::kSync, "*/ed25519.key.tmp.*", true, true},
    {"coordinator.signing.link", "kiln-coordinator", FaultCall::kRename, "*/ed25519.key", true, true},
    {"coordinator.signing.sync_directory", "kiln-coordinator", FaultCall::kSync, "*/signing", true, true},
    {"coordinator.signing.read", "kiln-coordinator", FaultCall::kRead, "*/ed25519.key", false, true},
    {"coordinator.life.write", "kiln-coordinator", FaultCall::kWrite, "*/generation.tmp.*", true, true},
    {"coordinator.life.rename", "kiln-coordinator", FaultCall::kRename, "*/generation", true, true},
    {"coordinator.receive", "kiln-coordinator", FaultCall::kReceive, "tcp", true, false},
    {"coordinator.answer", "kiln-coordinator", FaultCall::kSend, "tcp", true, false},
    // ---- The worker: source, compiler, object cache, runner, report ----
    {"worker.orders", "kiln-worker", FaultCall::kReceive, "tcp", true, false},
    {"worker.source.create", "kiln-worker", FaultCall::kCreate, "*/kernel.cc", true, false},
    {"worker.source.write", "kiln-worker", FaultCall::kWrite, "*/kernel.cc", true, false},
    {"worker.compiler.start", "kiln-worker", FaultCall::kSpawn, "*g++", true, false},
    {"worker.binary.read", "kiln-worker", FaultCall::kRead, "*/kernel.so", true, false},
    {"worker.object.create", "kiln-worker", FaultCall::kCreate, "*.object.tmp.*", true, false},
    {"worker.object.write", "kiln-worker", FaultCall::kWrite, "*.object.tmp.*", true, false},
    {"worker.object.sync", "kiln-worker", FaultCall::kSync, "*.object.tmp.*", true, false},
    {"worker.object.rename", "kiln-worker", FaultCall::kRename, "*.object", true, false},
    {"worker.object.sync_directory", "kiln-worker", FaultCall::kSync, "*/objects", true, false},
    {"worker.object.read", "kiln-worker", FaultCall::kRead, "*.object", false, true},
    {"worker.runner.start", "kiln-worker", FaultCall::kSpawn, "*/kiln-runner", true, true},
    {"worker.runner.send", "kiln-worker", FaultCall::kSend, "unix", true, false},
    {"worker.runner.receive", "kiln-worker", FaultCall::kReceive, "unix", true, false},
    {"worker.report", "kiln-worker", FaultCall::kSend, "tcp", true, false},
    // ---- The runner ----
    {"runner.receive", "kiln-runner", FaultCall::kReceive, "unix", true, false},
    {"runner.binary.write", "kiln-runner", FaultCall::kWrite, "/memfd:kiln-kernel*", true, false},
    {"runner.send", "kiln-runner", FaultCall::kSend, "unix", true, false},
    // ---- The client: request, answer, its own disk tier, the kernel ----
    {"client.request", "kiln", FaultCall::kSend, "tcp", true, false},
    {"client.receive", "kiln", FaultCall::kReceive, "tcp", true, false},
    {"client.blob.create", "kiln", FaultCall::kCreate, "*/blobs/*.tmp.*", true, false},
    {"client.blob.write", "kiln", FaultCall::kWrite, "*/blobs/*.tmp.*", true, false},
    {"client.blob.rename", "kiln", FaultCall::kRename, "*/blobs/*", true, false},
    {"client.blob.read", "kiln", FaultCall::kRead, "*/blobs/*", false, true},
    {"client.signing.create", "kiln", FaultCall::kCreate, "*/ed25519.key.tmp.*", true, false},
    {"client.signing.write", "kiln", FaultCall::kWrite, "*/ed25519.key.tmp.*", true, false},
    {"client.signing.sync", "kiln", FaultCall::kSync, "*/ed25519.key.tmp.*", true, false},
    {"client.signing.link", "kiln", FaultCall::kRename, "*/ed25519.key", true, false},
    {"client.signing.read", "kiln", FaultCall::kRead, "*/ed25519.key", false, false},
    {"client.signature.create", "kiln", FaultCall::kCreate, "*.sig.tmp.*", true, false},
    {"client.signature.write", "kiln", FaultCall::kWrite, "*.sig.tmp.*", true, false},
    {"client.signature.rename", "kiln", FaultCall::kRename, "*/programs/*.sig", true, false},
    {"client.signature.read", "kiln", FaultCall::kRead, "*/programs/*.sig", false, true},
    {"client.manifest.create", "kiln", FaultCall::kCreate, "*.json.tmp.*", true, false},
    {"client.manifest.write", "kiln", FaultCall::kWrite, "*.json.tmp.*", true, false},
    {"client.manifest.rename", "kiln", FaultCall::kRename, "*/programs/*.json", true, false},
    {"client.manifest.read", "kiln", FaultCall::kRead, "*/programs/*.json", false, true},
    {"client.binary.write", "kiln", FaultCall::kWrite, "/memfd:kiln-kernel*", false, false},
});
// clang-format on

constexpr int fault_point(std::string_view name) {
  for (size_t i = 0; i < kFaultPoints.size(); ++i)
    if (kFaultPoints[i].name == name) return static_cast<int>(i);
  return -1;
}

enum class FaultAction : uint8_t {
  kKill,   // SIGKILL to itself
  kStop,   // SIGSTOP to itself
  kFail,   // the call is not made and answers `error`
  kShort,  // half of what was asked for is done, and said so
  kTorn,   // half of it is done, then SIGKILL
  kDelay,  // by `delay_ms`
};

struct Fault {
  int point = 0;
  FaultAction action = FaultAction::kKill;
  bool after = false;  // the call, not before it; of kKill, kStop, kDelay
  int error = 0;       // errno
  int delay_ms = 0;
  int64_t skip = 0;   // this many passes are let go
  int64_t times = 1;  // then this many are struck
};

// Some faults at once, each of another point. They are written while `armed` is false.
struct FaultBoard {
  static constexpr uint64_t kMagic = 0x6b696c6e66617533;
  static constexpr size_t kSlots = 4;
  struct Slot {
    Fault fault;
    std::atomic<int64_t> to_skip{0}, to_strike{0};
    std::atomic<int64_t> struck{0};
    std::atomic<int32_t> struck_pid{0};  // the last one
  };
  uint64_t magic = kMagic;
  std::atomic<uint64_t> passed[kFaultPoints.size()] = {};
  std::atomic<bool> armed{false};
  size_t faults = 0;
  Slot slots[kSlots];
};

inline constexpr const char* kFaultBoardVariable = "KILN_FAULT_BOARD";

}  // namespace kiln::testing
