#include "schema/tracing/trace_context.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "compiler_core/base/signature.h"
#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr size_t kVersionEnd = 2, kTraceEnd = 35, kSpanEnd = 52, kFlagsEnd = 55;

std::string hex_of(const auto& id) {
  return to_hex({reinterpret_cast<const char*>(id.data()), id.size()});
}

bool is_zero(const auto& id) {
  return std::ranges::all_of(id, [](uint8_t byte) { return byte == 0; });
}

template <size_t N>
void randomise(std::array<uint8_t, N>& id) {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  do {
    for (size_t at = 0; at < N; at += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(id.data() + at, &word, sizeof word);
    }
  } while (is_zero(id));
}

}  // namespace

bool TraceContext::is_valid() const {
  return !is_zero(trace_id) && !is_zero(span_id);
}

std::string TraceContext::to_traceparent() const {
  if (!is_valid()) return "";
  return "00-" + hex_of(trace_id) + "-" + hex_of(span_id) + (sampled ? "-01" : "-00");
}

TraceContext TraceContext::parse(std::string_view text) {
  TraceContext context;
  std::array<uint8_t, 1> version{}, flags{};
  const bool has_form = text.size() >= kFlagsEnd && text[kVersionEnd] == '-' &&
                        text[kTraceEnd] == '-' && text[kSpanEnd] == '-';
  if (!has_form || !read_hex(text.substr(0, kVersionEnd), version) || version[0] == 0xff) return {};
  if (text.size() > kFlagsEnd && (version[0] == 0 || text[kFlagsEnd] != '-')) return {};
  if (!read_hex(text.substr(kVersionEnd + 1, 32), context.trace_id) ||
      !read_hex(text.substr(kTraceEnd + 1, 16), context.span_id) ||
      !read_hex(text.substr(kSpanEnd + 1, 2), flags) || !context.is_valid())
    return {};
  context.sampled = (flags[0] & 1) != 0;
  return context;
}

TraceContext TraceContext::root(bool sampled) {
  TraceContext context;
  randomise(context.trace_id);
  randomise(context.span_id);
  context.sampled = sampled;
  return context;
}

TraceContext TraceContext::child() const {
  TraceContext context = *this;
  randomise(context.span_id);
  return context;
}

}  // namespace kiln
