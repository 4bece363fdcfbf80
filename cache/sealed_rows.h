// The rows of programs, kernels and records as every store keeps them, whatever the engine: their
// texts, and the seal that each carries, a digest of its contents, so that a damaged row is noticed
// and never served. Persisted: neither a text nor a seal ever changes its meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"

namespace kiln {

// "cpu:x86-64-v4|2|Intel(R) Xeon(R) Processor", "cuda:sm_90a|132 cuda-13|NVIDIA H200": the model
// comes last since it may hold any character. kCorruption.
std::string target_to_text(const Target& target);
Result<Target> target_from_text(std::string_view text);

// Digests in a row; samples and sizes little-endian. Views live as long as the values.
std::string joined(const std::vector<Digest>& digests);
std::vector<Digest> digests_in(std::string_view bytes);
std::string_view as_bytes(const std::vector<double>& samples);
std::vector<double> samples_in(std::string_view bytes);
std::string_view as_bytes(const std::vector<int64_t>& sizes);
std::vector<int64_t> sizes_in(std::string_view bytes);

// kernel_to_json(), with the workload's text as one more member where there is one.
std::string kernel_to_text(const StoredKernel& stored);

// `blobs`: joined(); `audience`: Audience::to_text(); `target`: target_to_text().
Digest seal_program(const Digest& key, std::string_view manifest, std::string_view blobs,
                    std::string_view audience);
Digest seal_kernel(const Digest& key, std::string_view kernel, std::string_view target);
Digest seal_record(const TuningRecord& record);

// The kernel in a row. kCorruption when it does not match its seal.
Result<StoredKernel> read_kernel(const Digest& key, std::string_view kernel,
                                 std::string_view target, const Digest& seal);
// The record itself, if it matches its seal. kCorruption.
Result<TuningRecord> check_record(TuningRecord record, const Digest& seal);
// The row of `what` ("program", "kernel") does not match its seal.
tl::unexpected<Error> damaged(std::string_view what, const Digest& key);

// The keys in a manifest, its own and those of its kernels, without parsing the rest.
std::vector<Digest> keys_in(std::string_view manifest);
// A member of a manifest or a kernel's text, as it stands there: "worker":"name".
std::string json_member(const char* name, const std::string& value);

// Winners of other sizes, newest first, in the order of nearest_winners(): the nearest sizes first,
// each schedule once; those of another number of sizes are left out.
struct WinnerOfSizes {
  std::vector<int64_t> sizes;
  std::string schedule;
};
std::vector<Schedule> nearest_first(const std::vector<WinnerOfSizes>& winners,
                                    const std::vector<int64_t>& sizes);

}  // namespace kiln
