// OnnxModel: the parts of a .onnx file (a ModelProto, onnx/onnx-ml.proto), checked for form but not
// yet understood. Everything looks into the file's bytes, which must outlive it; nodes are read one
// at a time, so that a model costs little more than its bytes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler_core/base/dtype.h"
#include "compiler_core/base/result.h"

namespace kiln {

// Bounds on what a file may ask for; the largest models that exporters write stay far below.
inline constexpr size_t kMostOnnxNodes = 100'000;
inline constexpr size_t kMostOnnxInitializers = 200'000;
inline constexpr size_t kMostOnnxValues = 10'000;  // inputs of a graph, operands of a node, ...
inline constexpr size_t kMostOnnxRank = 16;

struct OnnxExternalData {
  std::string_view location;      // a path below the model's folder
  int64_t offset = 0;             // bytes
  std::optional<int64_t> length;  // bytes; to the end of the file when absent
};

// A TensorProto's header; read_onnx_tensor() (tensor.h) has its elements.
struct OnnxTensor {
  std::string_view name;
  std::vector<int64_t> dims;
  int32_t data_type = 0;
  std::optional<OnnxExternalData> external;
  std::string_view message;  // the whole
};

struct OnnxDim {
  std::optional<int64_t> size;
  std::string_view symbol;  // empty for a constant, or when the model names none
};
// A ValueInfoProto of a tensor.
struct OnnxValueInfo {
  std::string_view name;
  int32_t data_type = 0;  // 0: no tensor, or not said
  std::optional<std::vector<OnnxDim>> shape;
};

struct OnnxAttribute {
  std::string_view name;
  std::string_view reference;  // of an attribute of the function that the node stands in
  int32_t type = 0;            // AttributeProto.AttributeType; 0 in files of old
  float real = 0;
  int64_t integer = 0;
  std::string_view text;
  std::string_view tensor;  // the message
  std::vector<float> reals;
  std::vector<int64_t> integers;
  bool has_graph = false;
};

struct OnnxNode {
  std::string_view name, op, domain;              // domain: empty for ONNX's own
  std::vector<std::string_view> inputs, outputs;  // empty names: absent
  std::vector<OnnxAttribute> attributes;
};

struct OnnxModel {
  std::map<std::string_view, int64_t> opsets;  // versions, by domain; "" for ONNX's own
  std::vector<OnnxValueInfo> inputs, outputs;
  std::vector<OnnxTensor> initializers;
  std::string_view graph;  // the message
  size_t nodes = 0;
  bool has_functions = false;
};

// kInvalidArgument says what is wrong and where.
Result<OnnxModel> parse_onnx_model(std::string_view bytes);
Result<OnnxTensor> parse_onnx_tensor(std::string_view message);
// The nodes in order.
Status for_each_node(const OnnxModel& model, const std::function<Status(const OnnxNode&)>& visit);

// TensorProto.DataType. kUnsupported, naming the type, when Kiln has none of that kind.
Result<DType> onnx_dtype(int32_t data_type);

}  // namespace kiln
