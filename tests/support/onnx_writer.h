// Writes ONNX models for tests, field by field: what is no model, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::testing {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes.push_back(static_cast<char>(value | 128));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
inline std::string number_field(int field, int64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(static_cast<uint64_t>(value));
}
inline std::string bytes_field(int field, std::string_view bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

inline constexpr int kOnnxFloat = 1, kOnnxInt64 = 7;

// TensorProto with raw data.
inline std::string onnx_tensor(std::string_view name, int type, const std::vector<int64_t>& dims,
                               std::string_view raw) {
  std::string bytes;
  for (const int64_t size : dims) bytes += number_field(1, size);
  return bytes + number_field(2, type) + bytes_field(8, name) + bytes_field(9, raw);
}
template <class T>
std::string onnx_tensor_of(std::string_view name, int type, const std::vector<int64_t>& dims,
                           const std::vector<T>& values) {
  return onnx_tensor(name, type, dims,
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}
inline std::string onnx_external(std::string_view name, const std::vector<int64_t>& dims,
                                 std::string_view location, int64_t offset, int64_t length) {
  std::string bytes;
  for (const int64_t size : dims) bytes += number_field(1, size);
  const auto entry = [](std::string_view key, std::string_view value) {
    return bytes_field(13, bytes_field(1, key) + bytes_field(2, value));
  };
  return bytes + number_field(2, kOnnxFloat) + bytes_field(8, name) + entry("location", location) +
         entry("offset", std::to_string(offset)) + entry("length", std::to_string(length)) +
         number_field(14, 1);
}

// AttributeProto.
inline std::string onnx_integer(std::string_view name, int64_t value) {
  return bytes_field(1, name) + number_field(3, value) + number_field(20, 2);
}
inline std::string onnx_integers(std::string_view name, const std::vector<int64_t>& values) {
  std::string packed;
  for (const int64_t value : values) packed += varint(static_cast<uint64_t>(value));
  return bytes_field(1, name) + bytes_field(8, packed) + number_field(20, 7);
}
inline std::string onnx_node(std::string_view op, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const std::vector<std::string>& attributes = {},
                             std::string_view name = "") {
  std::string bytes;
  for (const std::string& input : inputs) bytes += bytes_field(1, input);
  for (const std::string& output : outputs) bytes += bytes_field(2, output);
  bytes += bytes_field(3, name) + bytes_field(4, op);
  for (const std::string& attribute : attributes) bytes += bytes_field(5, attribute);
  return bytes;
}

// ValueInfoProto; sizes are numbers or names of dynamic ones.
inline std::string onnx_value(std::string_view name, int type,
                              const std::vector<std::string>& sizes) {
  std::string dims;
  for (const std::string& size : sizes)
    dims += bytes_field(1, size.find_first_not_of("0123456789") == std::string::npos
                               ? number_field(1, std::stoll(size))
                               : bytes_field(2, size));
  return bytes_field(1, name) +
         bytes_field(2, bytes_field(1, number_field(1, type) + bytes_field(2, dims)));
}

struct OnnxGraphText {
  std::vector<std::string> nodes, initializers, inputs, outputs;
  int64_t opset = 18;
};
inline std::string onnx_model(const OnnxGraphText& graph) {
  std::string bytes;
  for (const std::string& node : graph.nodes) bytes += bytes_field(1, node);
  for (const std::string& tensor : graph.initializers) bytes += bytes_field(5, tensor);
  for (const std::string& input : graph.inputs) bytes += bytes_field(11, input);
  for (const std::string& output : graph.outputs) bytes += bytes_field(12, output);
  return number_field(1, 8) + bytes_field(7, bytes) +
         bytes_field(8, bytes_field(1, "") + number_field(2, graph.opset));
}

}  // namespace kiln::testing
