#include "compiler_core/ir/custom_call.h"

#include <charconv>

#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

// A list of fields, each as its length in bytes, a colon and its bytes; the whole in hex.
void put(std::string& fields, std::string_view field) {
  fields += std::to_string(field.size()) + ":" + std::string(field);
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

tl::unexpected<Error> malformed() {
  return fail(Code::kInvalidArgument, "a custom call's definition is malformed");
}

Result<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return malformed();
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(&hex[i], &hex[i] + 2, value, 16);
    if (error != std::errc() || end != &hex[i] + 2) return malformed();
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// Takes fields off the front; the first that is missing sticks.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}
  std::string_view text() {
    size_t size = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    const size_t digits = static_cast<size_t>(end - rest_.data());
    ok_ = ok_ && error == std::errc() && digits < rest_.size() && rest_[digits] == ':' &&
          size <= rest_.size() - digits - 1;
    if (!ok_) return {};
    const std::string_view field = rest_.substr(digits + 1, size);
    rest_.remove_prefix(digits + 1 + size);
    return field;
  }
  int64_t number() {
    const std::string_view field = text();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    ok_ = ok_ && error == std::errc() && end == field.data() + field.size();
    return ok_ ? value : 0;
  }
  // How many items follow: never more than there are bytes.
  size_t count() {
    const int64_t value = number();
    ok_ = ok_ && value >= 0 && value <= static_cast<int64_t>(rest_.size());
    return ok_ ? static_cast<size_t>(value) : 0;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string print_custom_call(const CustomCall& call) {
  std::string fields;
  put(fields, call.name);
  put(fields, print(call.reference));
  put(fields, std::to_string(call.kernels.size()));
  for (const CustomKernel& kernel : call.kernels) {
    for (const std::string* field : {&kernel.backend, &kernel.source, &kernel.entry, &kernel.block,
                                     &kernel.threads, &kernel.shared_bytes})
      put(fields, *field);
    put(fields, std::to_string(kernel.decisions.size()));
    for (const CustomDecision& decision : kernel.decisions) {
      put(fields, decision.name);
      put(fields, std::to_string(decision.values.size()));
      for (const int64_t value : decision.values) put(fields, std::to_string(value));
    }
  }
  return to_hex(fields);
}

Result<CustomCall> parse_custom_call(std::string_view word) {
  TRY(const std::string bytes, from_hex(word));
  Fields fields(bytes);
  CustomCall call;
  call.name = fields.text();
  const std::string_view reference = fields.text();
  call.kernels.resize(fields.count());
  for (CustomKernel& kernel : call.kernels) {
    for (std::string* field : {&kernel.backend, &kernel.source, &kernel.entry, &kernel.block,
                               &kernel.threads, &kernel.shared_bytes})
      *field = fields.text();
    kernel.decisions.resize(fields.count());
    for (CustomDecision& decision : kernel.decisions) {
      decision.name = fields.text();
      decision.values.resize(fields.count());
      for (int64_t& value : decision.values) value = fields.number();
    }
  }
  if (!fields.done()) return malformed();
  TRY(call.reference, parse_graph(reference));
  return call;
}

}  // namespace kiln
