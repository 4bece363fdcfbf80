// The lock file: which program each model had when it was locked, so that a later build gets the
// same or fails. `kiln lock` prints it, `kiln compile --locked` holds builds to it, `kiln bundle`
// takes it for a list, and `kiln.load` of the Python package gets its programs without the models. It
// is text, for version control:
//
//   kiln-lock 2
//   program models/softmax.pt2             the file, as it was named
//     target cpu:x86-64-v3
//     units 2                              of the device it was tuned for; left out where unknown
//     device Intel(R) Xeon(R) Processor    the same
//     toolkit cuda-13                      the same
//     mode max-autotune
//     graph DIGEST                         what is computed
//     digest DIGEST                        of what runs: pinned_digest()
//     input 1 user x                       the model's inputs in order: which of the program's it is
//     input 0 parameter net.0.weight       (-: none, the program does not read it), kind and name
//     layout 8,4 1,8                       of the input before: sizes and strides, where the program
//                                          takes the memory of a tensor that is not dense
//     mutation 1 2                         output 1 is the new value of the model's input 2
//     kernel WORKLOAD BLOB SCHEDULE        each, to name what changed
//
// Format 1 has no input, layout and mutation.
// Lines that begin with # are comments. Plain values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/program/program.h"

namespace kiln {

struct LockedKernel {
  Digest workload, blob;
  std::string schedule;
  bool operator==(const LockedKernel&) const = default;
};

struct LockedInput {
  int place = -1;  // among the program's inputs; -1: it does not read this one
  ExportedInput::Kind kind = ExportedInput::Kind::kUser;
  std::string name{};
  std::vector<int64_t> sizes{}, strides{};  // where the program takes flat memory; else empty
  bool operator==(const LockedInput&) const = default;
};

struct LockedMutation {
  int output = 0, input = 0;
  bool operator==(const LockedMutation&) const = default;
};

// How the model that a program was compiled from is called.
struct LockedCall {
  std::vector<LockedInput> inputs;
  std::vector<LockedMutation> mutations;
  bool operator==(const LockedCall&) const = default;

  // `input_order` as CompiledProgram has it.
  static LockedCall of(const ExportedProgram& exported, std::span<const int> input_order);
};

struct LockedProgram {
  std::string file;
  Target target;
  Mode mode = Mode::kDefault;
  Digest graph, digest;
  std::vector<LockedKernel> kernels;
  LockedCall call{};  // no inputs: of a file of format 1, or of a model without any
  bool operator==(const LockedProgram&) const = default;
};

// The digest of what runs: the binaries, their schedules, and the launches in order. When and where
// a program was tuned, and how fast it was, is no part of it. Equal digests compute the same bits on the same device.
Digest pinned_digest(const Program& program);

LockedProgram lock_of(const std::string& file, const Program& program, LockedCall call = {});

std::string print_lock(const std::vector<LockedProgram>& programs);
// kInvalidArgument names the line that is wrong; kUnsupported: a newer Kiln wrote it.
Result<std::vector<LockedProgram>> parse_lock(std::string_view text, const std::string& name);
bool is_lock(std::string_view text);  // it begins as one

// The differences between two, a sentence each; empty: none that matters.
std::vector<std::string> changes(const LockedProgram& was, const LockedProgram& now);

}  // namespace kiln
