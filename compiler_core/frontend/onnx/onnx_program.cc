#include "compiler_core/frontend/onnx/onnx_program.h"

#include <charconv>
#include <climits>
#include <fstream>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/onnx/lowering.h"
#include "compiler_core/frontend/onnx/tensor.h"

namespace kiln {
namespace {

constexpr std::string_view kPayload = "onnx:";

struct Span {
  uint64_t offset = 0, size = 0;
};
std::optional<Span> span_of(std::string_view payload) {
  payload.remove_prefix(kPayload.size());
  Span span;
  const char* end = payload.data() + payload.size();
  const auto [colon, first] = std::from_chars(payload.data(), end, span.offset);
  if (first != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [rest, second] = std::from_chars(colon + 1, end, span.size);
  if (second != std::errc() || rest != end) return std::nullopt;
  return span;
}

}  // namespace

// ModelProto: ir_version (field 1, a small number), then another field of the model.
bool is_onnx(std::string_view head) {
  if (head.size() < 3 || head[0] != '\x08' || head[1] < 1 || head[1] > 32) return false;
  constexpr std::string_view kNext = "\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca";
  return kNext.find(head[2]) != std::string_view::npos;
}

Result<ExportedProgram> read_onnx_bytes(std::string_view bytes, const std::optional<Path>& folder) {
  if (bytes.size() > INT_MAX)
    return fail(Code::kInvalidArgument,
                "the model is larger than 2 GiB; save it with external data");
  TRY(const OnnxModel model, parse_onnx_model(bytes));
  return lower_onnx_model(model, bytes, folder);
}

Result<ExportedProgram> read_onnx_file(const Path& path) {
  std::error_code error;
  if (const uintmax_t size = std::filesystem::file_size(path, error); !error && size > INT_MAX)
    return fail(Code::kInvalidArgument,
                path.string() + " is larger than 2 GiB; save the model with external data");
  TRY(const std::string bytes, read_file(path));
  auto program = read_onnx_bytes(bytes, path.parent_path());
  if (!program) return fail(program.error().within(path.string()));
  return program;
}

bool is_onnx_payload(std::string_view payload) {
  return payload.starts_with(kPayload);
}

Result<Tensor> read_onnx_payload(const Path& path, const ExportedInput& input) {
  const auto changed = [&](const std::string& why) {
    return fail(Code::kInvalidArgument,
                path.string() + " has changed since it was read: '" + input.name + "' " + why);
  };
  const std::optional<Span> span = span_of(input.payload);
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!span || error || span->offset > size || span->size > size - span->offset)
    return changed("lies behind its end");
  std::string message(span->size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(span->offset));
  in.read(message.data(), static_cast<std::streamsize>(message.size()));
  if (!in) return changed("cannot be read");
  TRY(const OnnxTensor stored, parse_onnx_tensor(message));
  auto tensor = read_onnx_tensor(stored, path.parent_path());
  if (!tensor) return fail(tensor.error().within("'" + input.name + "'"));
  if (!is_constant(input.shape) || tensor->dtype() != input.dtype ||
      tensor->sizes() != constant_sizes(input.shape))
    return changed("has another dtype or shape");
  return tensor;
}

}  // namespace kiln
