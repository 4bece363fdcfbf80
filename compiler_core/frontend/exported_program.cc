#include "compiler_core/frontend/exported_program.h"

#include <array>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/onnx/onnx_program.h"
#include "compiler_core/frontend/payload_config.h"
#include "compiler_core/frontend/pt2_archive.h"

namespace kiln {
namespace {

using PayloadConfig = std::unordered_map<std::string, PayloadEntry>;

struct PayloadFolder {
  std::string path;  // "data/weights/"
  PayloadConfig entries;
};

Result<PayloadFolder> read_config(const Pt2Archive& archive, const std::string& path,
                                  const std::string& config) {
  PayloadFolder folder{path, {}};
  const std::string name = path + config;
  if (!archive.contains(name)) return folder;
  TRY(const std::string json, archive.read_text(name, json_padding()));
  auto entries = parse_payload_config(json);
  if (!entries) return fail(entries.error().within(name));
  folder.entries = *std::move(entries);
  return folder;
}

// Elements from the first to the last that a strided tensor touches; nothing when it overflows.
std::optional<int64_t> extent(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return std::nullopt;
  }
  return last == std::numeric_limits<int64_t>::max() ? std::nullopt : std::optional(last + 1);
}

// Connects `input` with its bytes in the archive, if there are any.
Status attach(const Pt2Archive& archive, const PayloadFolder& folder, const PayloadEntry& declared,
              ExportedInput& input) {
  // Complex numbers lie as their two parts.
  PayloadEntry entry = declared;
  if (is_complex(entry.dtype)) {
    entry.sizes.push_back(2);
    entry.strides.push_back(1);
    bool overflows = __builtin_mul_overflow(entry.storage_offset, 2, &entry.storage_offset);
    for (size_t i = 0; i + 1 < entry.strides.size(); ++i)
      overflows |= __builtin_mul_overflow(entry.strides[i], 2, &entry.strides[i]);
    if (overflows)
      return fail(Code::kInvalidArgument,
                  "payload of '" + input.name + "' has strides that overflow");
  }
  const auto mismatch = [&](const std::string& why) {
    return fail(Code::kInvalidArgument, "payload of '" + input.name + "' " + why);
  };
  if (entry.pickled)
    return fail(Code::kUnsupported, "payload of '" + input.name +
                                        "' is pickled, and unpickling runs code; save plain "
                                        "tensors instead of tensor subclasses");
  TRY(const DType dtype, component_type(entry.dtype));
  bool same = dtype == input.dtype && entry.sizes.size() == input.shape.size();
  for (size_t i = 0; same && i < entry.sizes.size(); ++i) same = input.shape[i].is(entry.sizes[i]);
  if (!same) return mismatch("has another dtype or shape than the graph declares");
  const std::optional<int64_t> elements = extent(entry.sizes, entry.strides);
  int64_t bytes = 0;
  if (!elements || __builtin_add_overflow(*elements, entry.storage_offset, &bytes) ||
      __builtin_mul_overflow(bytes, size_of(dtype), &bytes))
    return mismatch("has strides that overflow");
  input.payload = folder.path + entry.path_name;
  input.payload_offset = entry.storage_offset;
  input.payload_strides = entry.strides;
  if (!archive.contains(input.payload)) return {};  // a graph-only archive
  TRY(const int64_t stored, archive.size_of(input.payload));
  if (stored == 0 && *elements > 0) return {};  // another way of writing one
  if (stored < bytes)
    return mismatch("holds " + std::to_string(stored) + " bytes of " + std::to_string(bytes));
  input.has_payload = true;
  return {};
}

// Connects `input` with its bytes in the first folder that has them, if there is one.
Status attach(const Pt2Archive& archive, std::span<const PayloadFolder> folders,
              ExportedInput& input) {
  if (input.kind == ExportedInput::Kind::kUser) return {};
  for (const PayloadFolder& folder : folders)
    if (const auto found = folder.entries.find(input.name); found != folder.entries.end())
      return attach(archive, folder, found->second, input);
  return {};
}

// Copies every element of a strided tensor from `source` to its place in `target`.
void copy_strided(const uint8_t* source, std::span<const int64_t> source_strides, uint8_t* target,
                  std::span<const int64_t> target_strides, std::span<const int64_t> sizes,
                  size_t element) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  std::vector<int64_t> at(sizes.size(), 0);
  int64_t from = 0, to = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(target + static_cast<size_t>(to) * element,
                source + static_cast<size_t>(from) * element, element);
    for (size_t axis = sizes.size(); axis-- > 0;) {
      from += source_strides[axis];
      to += target_strides[axis];
      if (++at[axis] < sizes[axis]) break;
      from -= source_strides[axis] * sizes[axis];
      to -= target_strides[axis] * sizes[axis];
      at[axis] = 0;
    }
  }
}

struct InputLayout {
  std::vector<int64_t> sizes, strides;
  std::vector<int64_t> stored;  // sizes of the graph's input: `sizes`, or the flat storage
};

Result<InputLayout> layout_of(const ExportedInput& input) {
  for (const std::vector<Dim>* dims : {&input.shape, &input.strides})
    if (!is_constant(*dims))
      return fail(Code::kInvalidArgument, "'" + input.name + "' has symbolic sizes");
  InputLayout layout{constant_sizes(input.shape), constant_sizes(input.strides), {}};
  TRY_STATUS(checked_bytes(input.dtype, layout.sizes).map([](int64_t) {}));
  layout.stored = layout.sizes;
  if (!is_dense(input)) {
    const std::optional<int64_t> elements = extent(layout.sizes, layout.strides);
    if (!elements) return fail(Code::kInvalidArgument, "'" + input.name + "' overflows");
    layout.stored = {*elements};
    TRY_STATUS(checked_bytes(input.dtype, layout.stored).map([](int64_t) {}));
  }
  return layout;
}

Result<Tensor> read_payload(const Pt2Archive& archive, const ExportedInput& input) {
  TRY(const InputLayout layout, layout_of(input));
  const int64_t element = size_of(input.dtype);
  const std::optional<int64_t> elements = extent(layout.sizes, input.payload_strides);
  // Checked again: the file may have changed since it was read.
  TRY(const int64_t stored_bytes, archive.size_of(input.payload));
  int64_t bytes = 0;
  if (!elements || __builtin_add_overflow(*elements, input.payload_offset, &bytes) ||
      __builtin_mul_overflow(bytes, element, &bytes) || stored_bytes < bytes)
    return fail(Code::kInvalidArgument, "payload of '" + input.name + "' is too short");
  const int64_t offset = input.payload_offset * element;
  Tensor tensor(input.dtype, layout.stored);
  const std::vector<int64_t> strides =
      is_dense(input) ? constant_sizes(contiguous_strides(input.shape)) : layout.strides;
  if (*elements == tensor.numel() && strides == input.payload_strides) {
    TRY_STATUS(archive.read_bytes(input.payload, offset, tensor.data(), tensor.byte_size()));
    return tensor;
  }
  Tensor stored(input.dtype, {*elements});
  TRY_STATUS(archive.read_bytes(input.payload, offset, stored.data(), stored.byte_size()));
  if (tensor.numel() > 0)
    copy_strided(stored.bytes().data(), input.payload_strides, tensor.bytes().data(), strides,
                 layout.sizes, static_cast<size_t>(element));
  return tensor;
}

}  // namespace

Result<ExportedProgram> read_archive(const Pt2Archive& archive) {
  TRY(const std::string json, archive.read_text("models/model.json", json_padding()));
  TRY(const ExportedModel model, parse_exported_model(json));
  TRY(PayloadFolder weights, read_config(archive, "data/weights/", "model_weights_config.json"));
  TRY(PayloadFolder constants,
      read_config(archive, "data/constants/", "model_constants_config.json"));
  const std::array folders = {std::move(weights), std::move(constants)};
  // Errors of a payload are reported below, where all of them are connected.
  const auto elements = [&](ExportedInput constant) -> std::optional<Tensor> {
    if (!attach(archive, folders, constant) || !constant.has_payload) return std::nullopt;
    auto tensor = read_payload(archive, constant);
    return tensor ? std::optional(*std::move(tensor)) : std::nullopt;
  };
  TRY(ExportedProgram program, lower_exported_model(model, elements));
  for (ExportedInput& input : program.inputs) TRY_STATUS(attach(archive, folders, input));
  return program;
}

bool is_dense(const ExportedInput& input) {
  Dim expected = 1;
  for (size_t i = input.shape.size(); i-- > 0;) {
    if (input.shape[i].is(0)) return true;
    if (!input.shape[i].is(1) && input.strides[i] != expected) return false;
    expected = expected * input.shape[i];
  }
  return true;
}

Result<ExportedProgram> read_exported_program(const Path& path) {
  TRY(const Pt2Archive archive, Pt2Archive::open(path));
  auto program = read_archive(archive);
  if (!program) return fail(program.error().within(path.string()));
  return program;
}

Result<Tensor> read_payload(const Path& path, const ExportedInput& input) {
  if (!input.has_payload)
    return fail(Code::kNotFound, "the archive " + path.string() + " carries no data for '" +
                                     input.name + "'; it was saved as a graph only");
  if (is_onnx_payload(input.payload)) return read_onnx_payload(path, input);
  TRY(const Pt2Archive archive, Pt2Archive::open(path));
  return read_payload(archive, input);
}

Result<Tensor> to_input_layout(const Tensor& tensor, const ExportedInput& input) {
  if (is_dense(input)) return tensor.clone();
  TRY(const InputLayout layout, layout_of(input));
  if (tensor.dtype() != input.dtype || tensor.sizes() != layout.sizes)
    return fail(Code::kInvalidArgument,
                "'" + input.name + "' needs " + std::string(to_string(input.dtype)) +
                    to_string(input.shape) + ", and was given another dtype or shape");
  Tensor result(input.dtype, layout.stored);
  copy_strided(tensor.bytes().data(), constant_sizes(contiguous_strides(input.shape)),
               result.bytes().data(), layout.strides, layout.sizes,
               static_cast<size_t>(size_of(input.dtype)));
  return result;
}

}  // namespace kiln
