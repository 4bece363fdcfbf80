#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/base/file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>

namespace kiln {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kLengthBytes = 8;
// The format's own limit on the header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 64;

tl::unexpected<Error> invalid_file(std::string message) {
  return fail(Code::kInvalidArgument, "safetensors: " + std::move(message));
}

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr DTypeName kDTypes[] = {
    {"F64", DType::kF64},        {"F32", DType::kF32},        {"F16", DType::kF16},
    {"BF16", DType::kBF16},      {"I8", DType::kI8},          {"I16", DType::kI16},
    {"I32", DType::kI32},        {"I64", DType::kI64},        {"U8", DType::kU8},
    {"BOOL", DType::kBool},      {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2},
    {"F8_E8M0", DType::kF8E8M0},
};

Result<DType> dtype_of(std::string_view name) {
  for (const DTypeName& each : kDTypes)
    if (each.name == name) return each.dtype;
  return invalid_file("dtype '" + std::string(name.substr(0, 16)) + "' is not covered");
}

std::string_view name_of(DType dtype) {
  for (const DTypeName& each : kDTypes)
    if (each.dtype == dtype) return each.name;
  return {};
}

uint64_t load_length(std::string_view bytes) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  return length;
}

struct Entry {
  std::string name;
  DType dtype;
  std::vector<int64_t> sizes;
  uint64_t begin, end;  // within the data
};

Result<std::vector<int64_t>> sizes_in(dom::element element) {
  dom::array list;
  if (element["shape"].get(list) != simdjson::SUCCESS) return invalid_file("'shape' is no list");
  if (list.size() > kMaxRank) return invalid_file("'shape' has more than 64 axes");
  std::vector<int64_t> sizes;
  for (const dom::element each : list) {
    int64_t size = 0;
    if (each.get(size) != simdjson::SUCCESS || size < 0) return invalid_file("'shape' has no size");
    sizes.push_back(size);
  }
  return sizes;
}

Result<Entry> parse_entry(dom::key_value_pair field, uint64_t data_size) {
  Entry entry{std::string(field.key), DType::kF32, {}, 0, 0};
  std::string_view dtype;
  if (field.value["dtype"].get(dtype) != simdjson::SUCCESS)
    return invalid_file("'dtype' is no string");
  TRY(entry.dtype, dtype_of(dtype));
  TRY(entry.sizes, sizes_in(field.value));
  dom::array offsets;
  if (field.value["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(entry.begin) != simdjson::SUCCESS ||
      offsets.at(1).get(entry.end) != simdjson::SUCCESS)
    return invalid_file("'data_offsets' is no pair");
  TRY(const int64_t bytes, checked_bytes(entry.dtype, entry.sizes));
  if (entry.begin > entry.end || entry.end > data_size)
    return invalid_file("the data lies outside the file; it may be truncated");
  if (entry.end - entry.begin != static_cast<uint64_t>(bytes))
    return invalid_file("the data has another size than dtype and shape say");
  return entry;
}

// Bytes that belong to two tensors, or to none, are a mistake or an attempt to hide something.
Status check_layout(std::vector<Entry>& entries, uint64_t data_size) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin < end) return invalid_file("tensor '" + entry.name + "' overlaps another");
    if (entry.begin > end)
      return invalid_file("there is a hole before tensor '" + entry.name + "'");
    end = entry.end;
  }
  return end == data_size ? Status{} : Status(invalid_file("there is data behind the last tensor"));
}

Result<std::vector<Entry>> parse_header(std::string_view header, uint64_t data_size) {
  dom::parser parser;
  const simdjson::padded_string padded(header);
  dom::object root;
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS)
    return invalid_file(std::string("the header is not a JSON object: ") +
                        simdjson::error_message(error));
  std::vector<Entry> entries;
  for (const dom::key_value_pair field : root) {
    if (field.key == "__metadata__") continue;
    auto entry = parse_entry(field, data_size);
    if (!entry)
      return fail(entry.error().within("tensor '" + std::string(field.key.substr(0, 200)) + "'"));
    entries.push_back(*std::move(entry));
  }
  TRY_STATUS(check_layout(entries, data_size));
  return entries;
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", c);
    else
      result += c;
  }
  return result + "\"";
}

}  // namespace

Result<std::map<std::string, Tensor>> parse_safetensors(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) return invalid_file("shorter than its 8 bytes of header length");
  const uint64_t length = load_length(bytes);
  bytes.remove_prefix(kLengthBytes);
  if (length > kMaxHeaderBytes || length > bytes.size())
    return invalid_file("the header is said to have " + std::to_string(length) +
                        " bytes, more than " + "there are; the file may be truncated");
  const std::string_view data = bytes.substr(length);
  TRY(const std::vector<Entry> entries, parse_header(bytes.substr(0, length), data.size()));
  std::map<std::string, Tensor> tensors;
  for (const Entry& entry : entries) {
    Tensor tensor(entry.dtype, entry.sizes);
    if (entry.end > entry.begin)
      std::memcpy(tensor.data(), data.data() + entry.begin, entry.end - entry.begin);
    if (!tensors.emplace(entry.name, std::move(tensor)).second)
      return invalid_file("tensor '" + entry.name + "' is there twice");
  }
  return tensors;
}

Result<std::map<std::string, Tensor>> read_safetensors(const Path& path) {
  TRY(const std::string bytes, read_file(path));
  auto tensors = parse_safetensors(bytes);
  if (!tensors) return fail(tensors.error().within(path.string()));
  return tensors;
}

Status write_safetensors(const Path& path, const std::map<std::string, const Tensor*>& tensors) {
  std::string header = "{";
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name_of(tensor->dtype()).empty())
      return invalid_file("dtype " + std::string(to_string(tensor->dtype())) +
                          " cannot be written");
    std::string sizes;
    for (const int64_t size : tensor->sizes())
      sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          offset == 0 && header.size() == 1 ? "" : ",", json_string(name),
                          name_of(tensor->dtype()), sizes, offset, offset + tensor->byte_size());
    offset += tensor->byte_size();
  }
  header += "}";
  // Spaces, so that the data is aligned.
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');
  std::string bytes;
  bytes.reserve(kLengthBytes + header.size() + static_cast<size_t>(offset));
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  bytes += header;
  for (const auto& [name, tensor] : tensors)
    bytes.append(static_cast<const char*>(tensor->data()),
                 static_cast<size_t>(tensor->byte_size()));
  return write_file(path, bytes);
}

}  // namespace kiln
