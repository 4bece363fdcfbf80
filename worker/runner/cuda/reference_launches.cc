#include "worker/runner/cuda/reference_launches.h"

#include <utility>

#include "compiler_core/base/check.h"

namespace kiln::runner {

Status ReferenceLaunches::reserve(size_t words) {
  TRY(memory_, device_.pool().allocate(static_cast<int64_t>(words * sizeof(int64_t))));
  return device_.synchronize();  // copies are not ordered after what is queued
}

void ReferenceLaunches::add(const char* entry, int64_t work, std::vector<int64_t> arguments) {
  steps_.push_back({entry, work, std::move(arguments)});
}

std::vector<int64_t> ReferenceLaunches::merged(const std::vector<int64_t>& sizes,
                                               const std::vector<int64_t>& strides) {
  std::vector<int64_t> merged_sizes, merged_strides;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] == 1) continue;
    if (!merged_sizes.empty() && merged_strides.back() == strides[k] * sizes[k]) {
      merged_sizes.back() *= sizes[k];
      merged_strides.back() = strides[k];
    } else {
      merged_sizes.push_back(sizes[k]);
      merged_strides.push_back(strides[k]);
    }
  }
  std::vector<int64_t> words{static_cast<int64_t>(merged_sizes.size())};
  words.insert(words.end(), merged_sizes.begin(), merged_sizes.end());
  words.insert(words.end(), merged_strides.begin(), merged_strides.end());
  return words;
}

int64_t ReferenceLaunches::list(const std::vector<int64_t>& words) {
  const auto [at, made] = offsets_.try_emplace(words, words_.size());
  if (made) words_.insert(words_.end(), words.begin(), words.end());
  CHECK(static_cast<int64_t>(words_.size() * sizeof(int64_t)) <= memory_.bytes(),
        "there is room for the lists");
  return parameter(memory_.data()) + static_cast<int64_t>(at->second * sizeof(int64_t));
}

Status ReferenceLaunches::launch() {
  if (copied_ < words_.size())
    TRY_STATUS(
        device_.device().copy_to_device(memory_.data() + copied_ * sizeof(int64_t),
                                        {reinterpret_cast<const uint8_t*>(words_.data() + copied_),
                                         (words_.size() - copied_) * sizeof(int64_t)}));
  copied_ = words_.size();
  for (const Step& step : std::exchange(steps_, {}))
    TRY_STATUS(device_.launch(step.entry, step.work, step.arguments));
  return {};
}

}  // namespace kiln::runner
