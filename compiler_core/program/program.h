// Program: a compiled graph: kernels, launches, buffer plan. What a client runs. Immutable.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/program/artifact.h"
#include "compiler_core/program/guard.h"
#include "compiler_core/program/target.h"
#include "compiler_core/program/template_versions.h"

namespace kiln {

// How a kernel was found; reported to people and scripts.
struct KernelReport {
  int candidates = 0;   // schedules in the search space that were tried
  int measured = 0;     // compiled, verified and timed
  int rejected = 0;     // compile_failed, wrong_result, out_of_bounds, timed_out, ...
  double best_us = 0;   // median of the winner; 0 in default mode
  double first_us = 0;  // median of the cost model's first guess
  // Time of the calibration kernel on the measuring device, in us; 0 if unknown. Divide by it to
  // compare timings from two devices of the same model.
  double sentinel_us = 0;
  bool operator==(const KernelReport&) const = default;
};

// A reporter is a worker and the name of its key (empty: there were no keys).
struct Reporter {
  std::string worker, key;
  auto operator<=>(const Reporter&) const = default;  // NOLINT(modernize-use-nullptr)
};

// The reporters that vouch for a kernel. Empty workers: not known, as in what was stored before
// this was kept.
struct Provenance {
  Reporter built, measured;         // `measured` timed the final; empty in default mode
  std::vector<Reporter> confirmed;  // built the same bytes, and found them right
  bool operator==(const Provenance&) const = default;
};

// The number of keys that vouch for the bytes of a kernel: those of its builder and of whoever
// confirmed it.
int keys_that_vouch(const Provenance& provenance);

struct ProgramKernel {
  Digest workload;       // WorkloadDigest
  Digest key;            // KernelKey
  std::string family;    // "pointwise", "row_reduction", "column_reduction", "matmul"
  std::string schedule;  // text form of tune/schedule.h
  Digest blob;           // digest of the binary
  Recipe recipe;
  KernelReport report;
  // Where `recipe` calls a library: the best kernel of Kiln's own, for machines that lack the
  // library or have another version. `blob` is its binary then, as the call needs none.
  struct Fallback {
    std::string schedule;
    Recipe recipe;
    double us = 0;  // its median beside the library's; 0: not known
    bool operator==(const Fallback&) const = default;
  };
  std::optional<Fallback> fallback = {};
  // The templates that had candidates for the workload when this one won; empty: not known, as in
  // what was stored before there were lists.
  TemplateVersions templates = {};
  Provenance provenance = {};
  // Its results were compared with the reference. False: it was answered as soon as it was
  // compiled, and is compared next; where it is wrong it is taken back (program/revocations.h).
  bool verified = true;
  bool operator==(const ProgramKernel&) const = default;
};

// Whether the kernel's binary is right as far as this build knows: its template, and that of its
// fallback, had a version of `oldest` (sound_versions() of kernels/registry.h) or a later one.
// False where the version is not known, or this build has no such template.
bool is_sound(const ProgramKernel& kernel, const TemplateVersions& oldest);

struct Buffer {
  enum class Kind : uint8_t { kInput = 1, kOutput = 2, kTemporary = 3 };
  Kind kind = Kind::kTemporary;
  int index = 0;  // position among the program's inputs or outputs; 0 for temporaries. For an
                  // output, output_buffers[index] is this buffer
  TensorSpec spec;
  Dim arena_offset;  // bytes into the arena, for temporaries; a multiple of 64
  bool operator==(const Buffer&) const = default;
};

struct Launch {
  int kernel = 0;              // index into kernels
  std::vector<int> args;       // indices into buffers: the kernel's inputs, then outputs
  std::vector<Dim> dims = {};  // the values of the kernel's symbols, in the program's symbols
  bool operator==(const Launch&) const = default;
};

// A partition of the graph that was tuned beside others; reported to people and scripts.
struct TunedCut {
  std::string name;  // "by rules", "attention in three kernels"
  int launches = 0;
  double us = 0;       // of all launches, by the medians of their kernels; 0: a kernel failed
  bool taken = false;  // the program is this one
  bool operator==(const TunedCut&) const = default;
};

struct Program {
  Digest key;    // ProgramKey
  Digest graph;  // GraphDigest
  Target target;
  Mode mode = Mode::kDefault;
  Digest template_stamp;  // of all templates of the build that planned it
  // Grows with every program that a coordinator plans, also over its incarnations; and when it did,
  // Unix time. 0: not known, as in programs made without a coordinator or before there were any.
  int64_t serial = 0, made_at_ms = 0;
  std::vector<ProgramKernel> kernels;  // distinct; launches refer to them
  std::vector<Buffer> buffers;
  std::vector<Launch> launches;     // in order
  std::vector<int> output_buffers;  // one per program output, in order; may repeat, and may be an
                                    // input buffer when an output is an input unchanged
  Dim arena_bytes;
  std::vector<ProgramSymbol> symbols;  // sizes that calls bind, in the order of their SymbolIds
  std::vector<Guard> guards;           // what must hold of them besides their ranges
  std::vector<TunedCut> cuts;          // the one by rules first; none where there was no choice
  bool operator==(const Program&) const = default;
};

// Some values of the symbols inside their ranges, to check at what cannot be proven in general: the
// least, the tuned ones and some between. One empty set when there are no symbols.
std::vector<std::vector<int64_t>> sample_sizes(const Program& program);

bool is_verified(const Program& program);  // every kernel of it

// The outputs that keep elements of an input (Recipe::kept), as buffers.
struct KeptBuffer {
  int output = 0, input = 0;
};
std::vector<KeptBuffer> kept_buffers(const Program& program);
// By output: the input whose buffer may be given for it too. What the program does not change of it
// is then not copied. Nothing: the two buffers lie apart.
std::vector<std::optional<int>> updated_inputs(const Program& program);

std::string program_to_json(const Program& program);
// kCorruption when the text is not a program; safe on hostile text: indices are in range, sizes
// valid, arena offsets inside the arena, symbols declared, ranges not contradictory.
Result<Program> program_from_json(std::string_view json);

// One kernel's entry of the manifest, by itself, as the cache keeps it. Errors as above.
std::string kernel_to_json(const ProgramKernel& kernel);
Result<ProgramKernel> kernel_from_json(std::string_view json);

// The artifact that a device loads for a kernel with this binary.
Artifact artifact_of(const ProgramKernel& kernel, std::string binary);

// ProgramKey: GraphDigest, Target, mode. What the program was made with is not in it.
Digest program_key(const Digest& graph, const Target& target, Mode mode);

}  // namespace kiln
