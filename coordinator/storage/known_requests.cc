#include "coordinator/storage/known_requests.h"

#include <cstring>

#include "coordinator/storage/numbered_frame.h"

namespace kiln {
namespace {

// The position of the number in every request without a graph.
size_t number_at() {
  static const size_t kAt = NumberedFrame::of(CompileRequest{}).number_at();
  return kAt;
}

}  // namespace

void KnownRequests::remember(const CompileRequest& request, const Digest& program) {
  if (!request.graph_text.empty() || !request.traceparent.empty()) return;
  NumberedFrame frame = NumberedFrame::of(request);
  if (frame.bytes() > kMaxWordsBytes || frame.number_at() != number_at()) return;
  if (programs_.size() >= kMaxRequests) programs_.clear();
  programs_.insert_or_assign(std::string(frame.with(0)), program);
}

std::optional<KnownRequests::Found> KnownRequests::find(std::string_view frame) {
  Found found;
  const size_t at = number_at();
  if (frame.size() < at + sizeof found.request || frame.size() > kMaxWordsBytes) return {};
  words_.assign(frame);
  std::memcpy(&found.request, words_.data() + at, sizeof found.request);
  std::memset(words_.data() + at, 0, sizeof found.request);
  const auto known = programs_.find(words_);
  if (known == programs_.end()) return {};
  found.program = known->second;
  return found;
}

}  // namespace kiln
