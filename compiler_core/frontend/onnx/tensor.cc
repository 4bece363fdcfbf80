#include "compiler_core/frontend/onnx/tensor.h"

#define ONNX_ML 1  // else the header looks for another, which Debian has not
#include <onnx/onnx_pb.h>

#include <cstring>
#include <fstream>

#include "compiler_core/frontend/onnx/wire.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using Proto = ::onnx::TensorProto;

// The list that holds elements of the type when they are not raw bytes; int32_data has all types of
// up to 32 bits but float, half types as their bits.
int list_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Proto::kFloatDataFieldNumber;
    case DType::kF64:
      return Proto::kDoubleDataFieldNumber;
    case DType::kI64:
      return Proto::kInt64DataFieldNumber;
    default:
      return Proto::kInt32DataFieldNumber;
  }
}

bool is_varint_list(int number) {
  return number == Proto::kInt64DataFieldNumber || number == Proto::kInt32DataFieldNumber;
}

struct Stored {
  std::optional<std::string_view> raw;
  std::vector<WireField> listed;  // packed lists, or single numbers
  int64_t elements = 0;           // that are listed
};

Result<Stored> stored_in(const OnnxTensor& tensor, DType dtype) {
  const int list = list_of(dtype);
  const int64_t element = size_of(dtype);
  Stored stored;
  TRY_STATUS(for_each_field(tensor.message, [&](const WireField& field) -> Status {
    if (field.number == Proto::kRawDataFieldNumber) stored.raw = field.bytes;
    if (field.number != list) return {};
    // A packed list may come in pieces, a list of old has a field for each element.
    const bool packed = field.kind == WireField::Kind::kBytes;
    if (stored.listed.size() >= 1 << 20)
      return fail(Code::kInvalidArgument, "its elements lie in too many pieces; save it raw");
    stored.listed.push_back(field);
    if (!packed)
      ++stored.elements;
    else if (is_varint_list(list))
      stored.elements += static_cast<int64_t>(count_varints(field.bytes));
    else
      stored.elements += static_cast<int64_t>(field.bytes.size()) / element;
    return {};
  }));
  return stored;
}

std::string counts(int64_t has, int64_t needs, std::string_view unit) {
  return "holds " + std::to_string(has) + " " + std::string(unit) + " of " + std::to_string(needs);
}

Status check_stored(const Stored& stored, int64_t bytes, int64_t element) {
  if (stored.raw) {
    const int64_t has = static_cast<int64_t>(stored.raw->size());
    if (has == bytes) return {};
    return fail(Code::kInvalidArgument, counts(has, bytes, "bytes"));
  }
  if (stored.elements == bytes / element) return {};
  return fail(Code::kInvalidArgument, counts(stored.elements, bytes / element, "elements"));
}

// The file of external data; nothing when there is none of that name.
Result<std::optional<fs::path>> external_file(const OnnxExternalData& data,
                                              const std::optional<fs::path>& folder) {
  const fs::path location(data.location);
  const auto refuse = [&](const std::string& why) {
    return fail(Code::kInvalidArgument,
                "external data '" + std::string(data.location.substr(0, 200)) + "' " + why);
  };
  if (!folder) return refuse("has no folder to lie in: give the model as a file");
  if (location.empty() || location.is_absolute() ||
      data.location.find('\0') != std::string_view::npos)
    return refuse("is not a path below the model's folder");
  std::error_code error;
  const fs::path home = fs::canonical(folder->empty() ? fs::path(".") : *folder, error);
  if (error) return refuse("cannot be found: " + error.message());
  const fs::path file = fs::weakly_canonical(home / location, error);
  if (error) return refuse("cannot be found: " + error.message());
  const auto [end, rest] = std::mismatch(home.begin(), home.end(), file.begin(), file.end());
  if (end != home.end() || rest == file.end())
    return refuse("leads out of the model's folder; put it beside the model");
  if (!fs::exists(file, error)) return std::nullopt;
  if (!fs::is_regular_file(file, error)) return refuse("is no regular file");
  return file;
}

Status check_external(const OnnxExternalData& data, const fs::path& file, int64_t bytes) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) return fail(Code::kInvalidArgument, file.string() + ": " + error.message());
  if (data.length && *data.length != bytes)
    return fail(Code::kInvalidArgument, "external data: " + counts(*data.length, bytes, "bytes"));
  const uintmax_t offset = static_cast<uintmax_t>(data.offset);
  if (offset > size || size - offset < static_cast<uintmax_t>(bytes))
    return fail(Code::kInvalidArgument, file.filename().string() + " is truncated: the tensor's " +
                                            std::to_string(bytes) + " bytes at " +
                                            std::to_string(data.offset) + " end behind it");
  return {};
}

// An element of a list of varints: a number, or the bits of a half type.
void set_element(Tensor& tensor, int64_t index, int64_t value) {
  const size_t element = static_cast<size_t>(size_of(tensor.dtype()));
  uint8_t* to = tensor.bytes().data() + static_cast<size_t>(index) * element;
  std::memcpy(to, &value, element);  // little-endian, as the machines that Kiln runs on are
}

Status copy_listed(const Stored& stored, Tensor& tensor) {
  int64_t at = 0;
  const int64_t element = size_of(tensor.dtype());
  const bool varints = is_varint_list(list_of(tensor.dtype()));
  for (const WireField& field : stored.listed) {
    if (varints) {
      std::vector<int64_t> values;
      TRY_STATUS(append_integers(field, static_cast<size_t>(tensor.numel() - at), values));
      for (const int64_t value : values) set_element(tensor, at++, value);
    } else if (field.kind == WireField::Kind::kBytes) {
      const size_t bytes = field.bytes.size();
      if (bytes % static_cast<size_t>(element) != 0)
        return fail(Code::kInvalidArgument, "malformed protobuf: no list of numbers");
      if (bytes > 0) std::memcpy(tensor.bytes().data() + at * element, field.bytes.data(), bytes);
      at += static_cast<int64_t>(bytes) / element;
    } else {
      set_element(tensor, at++, field.integer());
    }
  }
  return {};
}

Status read_external(const OnnxExternalData& data, const fs::path& file, Tensor& tensor) {
  std::ifstream in(file, std::ios::binary);
  in.seekg(data.offset);
  in.read(static_cast<char*>(tensor.data()), tensor.byte_size());
  if (!in) return fail(Code::kInvalidArgument, "cannot read " + file.string());
  return {};
}

}  // namespace

Result<bool> has_elements(const OnnxTensor& tensor, const std::optional<fs::path>& folder) {
  TRY(const DType dtype, onnx_dtype(tensor.data_type));
  TRY(const int64_t bytes, checked_bytes(dtype, tensor.dims));
  if (tensor.external) {
    TRY(const std::optional<fs::path> file, external_file(*tensor.external, folder));
    if (!file) return false;
    TRY_STATUS(check_external(*tensor.external, *file, bytes));
    return true;
  }
  TRY(const Stored stored, stored_in(tensor, dtype));
  TRY_STATUS(check_stored(stored, bytes, size_of(dtype)));
  return true;
}

Result<Tensor> read_onnx_tensor(const OnnxTensor& tensor, const std::optional<fs::path>& folder) {
  TRY(const DType dtype, onnx_dtype(tensor.data_type));
  TRY(const int64_t bytes, checked_bytes(dtype, tensor.dims));
  // Before any memory is taken: a few bytes may claim any shape.
  TRY(const bool there, has_elements(tensor, folder));
  if (!there)
    return fail(Code::kNotFound, "its external data '" + std::string(tensor.external->location) +
                                     "' is missing; put the file beside the model");
  Tensor result(dtype, tensor.dims);
  if (bytes == 0) return result;
  if (tensor.external) {
    TRY(const std::optional<fs::path> file, external_file(*tensor.external, folder));
    if (!file) return fail(Code::kNotFound, "its external data is missing");
    TRY_STATUS(read_external(*tensor.external, *file, result));
  } else {
    TRY(const Stored stored, stored_in(tensor, dtype));
    if (stored.raw)
      std::memcpy(result.data(), stored.raw->data(), stored.raw->size());
    else
      TRY_STATUS(copy_listed(stored, result));
  }
  if (dtype == DType::kBool)
    for (uint8_t& byte : result.bytes()) byte = byte != 0 ? 1 : 0;
  return result;
}

}  // namespace kiln
