#include "compiler_core/frontend/onnx/wire.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>

namespace kiln {
namespace {

using google::protobuf::io::CodedInputStream;

tl::unexpected<Error> malformed(std::string_view why) {
  return fail(Code::kInvalidArgument, "malformed protobuf: " + std::string(why));
}

CodedInputStream stream(std::string_view bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
}

// The value behind a tag of wire type `type`.
Status read_value(CodedInputStream& in, std::string_view message, uint32_t type, WireField& field) {
  uint32_t word = 0;
  switch (type) {
    case 0:
      field.kind = WireField::Kind::kVarint;
      if (!in.ReadVarint64(&field.bits)) return malformed("a number is truncated");
      return {};
    case 1:
      field.kind = WireField::Kind::kFixed64;
      if (!in.ReadLittleEndian64(&field.bits)) return malformed("a number is truncated");
      return {};
    case 5:
      field.kind = WireField::Kind::kFixed32;
      if (!in.ReadLittleEndian32(&word)) return malformed("a number is truncated");
      field.bits = word;
      return {};
    case 2: {
      field.kind = WireField::Kind::kBytes;
      if (!in.ReadVarint32(&word)) return malformed("a length is truncated");
      const size_t at = static_cast<size_t>(in.CurrentPosition());
      if (word > message.size() - at)
        return malformed("field " + std::to_string(field.number) + " ends behind its message");
      field.bytes = message.substr(at, word);
      in.Skip(static_cast<int>(word));
      return {};
    }
    default:
      return malformed("field " + std::to_string(field.number) + " has wire type " +
                       std::to_string(type));
  }
}

}  // namespace

Status for_each_field(std::string_view message,
                      const std::function<Status(const WireField&)>& visit) {
  if (message.size() > INT_MAX) return malformed("a message is larger than 2 GiB");
  CodedInputStream in = stream(message);
  while (const uint32_t tag = in.ReadTag()) {
    WireField field;
    field.number = static_cast<int>(tag >> 3);
    TRY_STATUS(read_value(in, message, tag & 7, field));
    TRY_STATUS(visit(field));
  }
  if (!in.ConsumedEntireMessage()) return malformed("a tag is truncated or 0");
  return {};
}

size_t count_varints(std::string_view packed) {
  return static_cast<size_t>(
      std::count_if(packed.begin(), packed.end(), [](char c) { return (c & 0x80) == 0; }));
}

Status append_integers(const WireField& field, size_t most, std::vector<int64_t>& values) {
  const bool packed = field.kind == WireField::Kind::kBytes;
  if (!packed && field.kind != WireField::Kind::kVarint) return malformed("no list of integers");
  const size_t more = packed ? count_varints(field.bytes) : 1;
  if (more > most || values.size() > most - more)
    return fail(Code::kInvalidArgument,
                "a list has more than " + std::to_string(most) + " integers");
  if (!packed) {
    values.push_back(field.integer());
    return {};
  }
  values.reserve(values.size() + more);
  CodedInputStream in = stream(field.bytes);
  uint64_t value = 0;
  for (size_t i = 0; i < more; ++i) {
    if (!in.ReadVarint64(&value)) return malformed("a list of integers is truncated");
    values.push_back(static_cast<int64_t>(value));
  }
  if (static_cast<size_t>(in.CurrentPosition()) != field.bytes.size())
    return malformed("a list of integers is truncated");
  return {};
}

Status append_floats(const WireField& field, size_t most, std::vector<float>& values) {
  if (field.kind == WireField::Kind::kFixed32) {
    if (values.size() >= most) return fail(Code::kInvalidArgument, "a list has too many numbers");
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(field.bits)));
    return {};
  }
  if (field.kind != WireField::Kind::kBytes || field.bytes.size() % sizeof(float) != 0)
    return malformed("no list of numbers");
  const size_t more = field.bytes.size() / sizeof(float);
  if (more > most || values.size() > most - more)
    return fail(Code::kInvalidArgument, "a list has too many numbers");
  if (more == 0) return {};
  const size_t before = values.size();
  values.resize(before + more);
  std::memcpy(values.data() + before, field.bytes.data(), field.bytes.size());
  return {};
}

}  // namespace kiln
