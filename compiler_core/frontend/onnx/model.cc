#include "compiler_core/frontend/onnx/model.h"

#define ONNX_ML 1  // else the header looks for another, which Debian has not
#include <onnx/onnx_pb.h>

#include <bit>

#include "compiler_core/base/text.h"
#include "compiler_core/frontend/onnx/wire.h"

// Fields by the numbers that libonnx's header gives them; the messages themselves are not used: one
// of two bytes would become an object of two hundred.
namespace kiln {
namespace {

constexpr size_t kMostListed = 1 << 20;  // numbers in an attribute

tl::unexpected<Error> too_many(std::string_view what, size_t most) {
  return fail(Code::kInvalidArgument,
              "has more than " + std::to_string(most) + " " + std::string(what));
}

Result<std::string_view> bytes_of(const WireField& field) {
  if (field.kind != WireField::Kind::kBytes)
    return fail(Code::kInvalidArgument,
                "malformed protobuf: field " + std::to_string(field.number) + " holds no bytes");
  return field.bytes;
}

Status append(const WireField& field, std::string_view what, size_t most,
              std::vector<std::string_view>& list) {
  TRY(const std::string_view bytes, bytes_of(field));
  if (list.size() >= most) return too_many(what, most);
  list.push_back(bytes);
  return {};
}

Status assign(const WireField& field, std::string_view& to) {
  TRY(to, bytes_of(field));
  return {};
}

// StringStringEntryProto of TensorProto.external_data.
Status external_entry(std::string_view message, OnnxExternalData& data) {
  using Entry = ::onnx::StringStringEntryProto;
  std::string_view key, value;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number == Entry::kKeyFieldNumber) return assign(field, key);
    if (field.number == Entry::kValueFieldNumber) return assign(field, value);
    return {};
  }));
  if (key == "location") data.location = value;
  if (key != "offset" && key != "length") return {};
  int64_t number = 0;
  if (!read_count(value, number))
    return fail(Code::kInvalidArgument, "external data has a bad " + std::string(key));
  if (key == "offset")
    data.offset = number;
  else
    data.length = number;
  return {};
}

Result<OnnxDim> dim_of(std::string_view message) {
  using Dimension = ::onnx::TensorShapeProto_Dimension;
  OnnxDim dim;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number == Dimension::kDimValueFieldNumber) dim.size = field.integer();
    if (field.number == Dimension::kDimParamFieldNumber) return assign(field, dim.symbol);
    return {};
  }));
  return dim;
}

Result<std::vector<OnnxDim>> shape_of(std::string_view message) {
  std::vector<OnnxDim> dims;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number != ::onnx::TensorShapeProto::kDimFieldNumber) return {};
    if (dims.size() >= kMostOnnxRank) return too_many("axes", kMostOnnxRank);
    TRY(const std::string_view bytes, bytes_of(field));
    TRY(const OnnxDim dim, dim_of(bytes));
    dims.push_back(dim);
    return {};
  }));
  return dims;
}

Status tensor_type(std::string_view message, OnnxValueInfo& info) {
  using Type = ::onnx::TypeProto_Tensor;
  return for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number == Type::kElemTypeFieldNumber)
      info.data_type = static_cast<int32_t>(field.integer());
    if (field.number != Type::kShapeFieldNumber) return {};
    TRY(const std::string_view bytes, bytes_of(field));
    TRY(info.shape, shape_of(bytes));
    return {};
  });
}

Result<OnnxValueInfo> value_info(std::string_view message) {
  using Info = ::onnx::ValueInfoProto;
  OnnxValueInfo info;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number == Info::kNameFieldNumber) return assign(field, info.name);
    if (field.number != Info::kTypeFieldNumber) return {};
    TRY(const std::string_view type, bytes_of(field));
    return for_each_field(type, [&](const WireField& inner) -> Status {
      if (inner.number != ::onnx::TypeProto::kTensorTypeFieldNumber) return {};
      TRY(const std::string_view bytes, bytes_of(inner));
      return tensor_type(bytes, info);
    });
  }));
  return info;
}

Status append_info(const WireField& field, std::string_view what,
                   std::vector<OnnxValueInfo>& list) {
  if (list.size() >= kMostOnnxValues) return too_many(what, kMostOnnxValues);
  TRY(const std::string_view bytes, bytes_of(field));
  TRY(OnnxValueInfo info, value_info(bytes));
  list.push_back(std::move(info));
  return {};
}

Result<OnnxAttribute> attribute_of(std::string_view message) {
  using Attribute = ::onnx::AttributeProto;
  OnnxAttribute attribute;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    switch (field.number) {
      case Attribute::kNameFieldNumber:
        return assign(field, attribute.name);
      case Attribute::kRefAttrNameFieldNumber:
        return assign(field, attribute.reference);
      case Attribute::kTypeFieldNumber:
        attribute.type = static_cast<int32_t>(field.integer());
        return {};
      case Attribute::kFFieldNumber:
        attribute.real = std::bit_cast<float>(static_cast<uint32_t>(field.bits));
        return {};
      case Attribute::kIFieldNumber:
        attribute.integer = field.integer();
        return {};
      case Attribute::kSFieldNumber:
        return assign(field, attribute.text);
      case Attribute::kTFieldNumber:
        return assign(field, attribute.tensor);
      case Attribute::kFloatsFieldNumber:
        return append_floats(field, kMostListed, attribute.reals);
      case Attribute::kIntsFieldNumber:
        return append_integers(field, kMostListed, attribute.integers);
      case Attribute::kGFieldNumber:
      case Attribute::kGraphsFieldNumber:
        attribute.has_graph = true;
        return {};
      default:
        return {};
    }
  }));
  return attribute;
}

Result<OnnxNode> node_of(std::string_view message) {
  using Proto = ::onnx::NodeProto;
  OnnxNode node;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    switch (field.number) {
      case Proto::kNameFieldNumber:
        return assign(field, node.name);
      case Proto::kOpTypeFieldNumber:
        return assign(field, node.op);
      case Proto::kDomainFieldNumber:
        return assign(field, node.domain);
      case Proto::kInputFieldNumber:
        return append(field, "operands", kMostOnnxValues, node.inputs);
      case Proto::kOutputFieldNumber:
        return append(field, "outputs", kMostOnnxValues, node.outputs);
      case Proto::kAttributeFieldNumber: {
        if (node.attributes.size() >= 100) return too_many("attributes", 100);
        TRY(const std::string_view bytes, bytes_of(field));
        TRY(OnnxAttribute attribute, attribute_of(bytes));
        node.attributes.push_back(std::move(attribute));
        return {};
      }
      default:
        return {};
    }
  }));
  if (node.domain == "ai.onnx") node.domain = {};
  return node;
}

Status opset_of(std::string_view message, OnnxModel& model) {
  using Opset = ::onnx::OperatorSetIdProto;
  std::string_view domain;
  int64_t version = 0;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    if (field.number == Opset::kVersionFieldNumber) version = field.integer();
    if (field.number == Opset::kDomainFieldNumber) return assign(field, domain);
    return {};
  }));
  if (model.opsets.size() >= 1000) return too_many("opsets", 1000);
  model.opsets[domain == "ai.onnx" ? std::string_view() : domain] = version;
  return {};
}

Status graph_of(OnnxModel& model) {
  using Proto = ::onnx::GraphProto;
  return for_each_field(model.graph, [&](const WireField& field) -> Status {
    switch (field.number) {
      case Proto::kNodeFieldNumber:
        return ++model.nodes <= kMostOnnxNodes ? Status{} : too_many("nodes", kMostOnnxNodes);
      case Proto::kInputFieldNumber:
        return append_info(field, "inputs", model.inputs);
      case Proto::kOutputFieldNumber:
        return append_info(field, "outputs", model.outputs);
      case Proto::kInitializerFieldNumber: {
        if (model.initializers.size() >= kMostOnnxInitializers)
          return too_many("initializers", kMostOnnxInitializers);
        TRY(const std::string_view bytes, bytes_of(field));
        auto tensor = parse_onnx_tensor(bytes);
        if (!tensor)
          return fail(
              tensor.error().within("initializer " + std::to_string(model.initializers.size())));
        model.initializers.push_back(*std::move(tensor));
        return {};
      }
      case Proto::kSparseInitializerFieldNumber:
        return fail(Code::kUnsupported,
                    "a sparse initializer is not covered; save the model with dense ones");
      default:
        return {};
    }
  });
}

}  // namespace

Result<OnnxTensor> parse_onnx_tensor(std::string_view message) {
  using Proto = ::onnx::TensorProto;
  OnnxTensor tensor;
  tensor.message = message;
  OnnxExternalData external;
  bool is_external = false;
  TRY_STATUS(for_each_field(message, [&](const WireField& field) -> Status {
    switch (field.number) {
      case Proto::kNameFieldNumber:
        return assign(field, tensor.name);
      case Proto::kDimsFieldNumber:
        return append_integers(field, kMostOnnxRank, tensor.dims);
      case Proto::kDataTypeFieldNumber:
        tensor.data_type = static_cast<int32_t>(field.integer());
        return {};
      case Proto::kDataLocationFieldNumber:
        is_external = field.integer() == Proto::EXTERNAL;
        return {};
      case Proto::kExternalDataFieldNumber: {
        TRY(const std::string_view bytes, bytes_of(field));
        return external_entry(bytes, external);
      }
      case Proto::kSegmentFieldNumber:
        return fail(Code::kUnsupported, "a tensor in segments is not covered");
      default:
        return {};
    }
  }));
  if (is_external) tensor.external = external;
  for (const int64_t size : tensor.dims)
    if (size < 0) return fail(Code::kInvalidArgument, "a tensor has a negative size");
  return tensor;
}

Result<OnnxModel> parse_onnx_model(std::string_view bytes) {
  using Proto = ::onnx::ModelProto;
  OnnxModel model;
  bool has_graph = false;
  TRY_STATUS(for_each_field(bytes, [&](const WireField& field) -> Status {
    if (field.number == Proto::kFunctionsFieldNumber) model.has_functions = true;
    if (field.number == Proto::kOpsetImportFieldNumber) {
      TRY(const std::string_view opset, bytes_of(field));
      return opset_of(opset, model);
    }
    if (field.number != Proto::kGraphFieldNumber) return {};
    if (has_graph) return fail(Code::kInvalidArgument, "has two graphs");
    has_graph = true;
    return assign(field, model.graph);
  }));
  if (!has_graph) return fail(Code::kInvalidArgument, "has no graph: it is no ONNX model");
  TRY_STATUS(graph_of(model));
  return model;
}

Status for_each_node(const OnnxModel& model, const std::function<Status(const OnnxNode&)>& visit) {
  size_t index = 0;
  return for_each_field(model.graph, [&](const WireField& field) -> Status {
    if (field.number != ::onnx::GraphProto::kNodeFieldNumber) return {};
    TRY(const std::string_view bytes, bytes_of(field));
    const auto node = node_of(bytes);
    if (!node) return fail(node.error().within("node " + std::to_string(index)));
    ++index;
    return visit(*node);
  });
}

Result<DType> onnx_dtype(int32_t data_type) {
  using Proto = ::onnx::TensorProto;
  switch (data_type) {
    case Proto::FLOAT:
      return DType::kF32;
    case Proto::DOUBLE:
      return DType::kF64;
    case Proto::FLOAT16:
      return DType::kF16;
    case Proto::BFLOAT16:
      return DType::kBF16;
    case Proto::INT8:
      return DType::kI8;
    case Proto::INT16:
      return DType::kI16;
    case Proto::INT32:
      return DType::kI32;
    case Proto::INT64:
      return DType::kI64;
    case Proto::UINT8:
      return DType::kU8;
    case Proto::BOOL:
      return DType::kBool;
    default:
      break;
  }
  const auto named = [](std::string_view name) {
    return fail(Code::kUnsupported, "tensors of " + std::string(name) +
                                        " are not covered; cast them to a type that Kiln has "
                                        "(float, double, float16, bfloat16, int8 to int64, uint8, "
                                        "bool) before the export");
  };
  // Behind what libonnx 1.12 names: four of eight bits, two integers and a float of four, e8m0.
  constexpr int32_t kFirstFloat8 = 17, kLastFloat8 = 20, kLastOfFourBits = 23, kFloat8E8M0 = 24;
  if (data_type >= kFirstFloat8 && data_type <= kLastFloat8) return named("float8");
  if (data_type == kFloat8E8M0) return named("float8e8m0");
  if (data_type > kLastFloat8 && data_type <= kLastOfFourBits) return named("four bits");
  switch (data_type) {
    case Proto::UINT16:
      return named("uint16");
    case Proto::UINT32:
      return named("uint32");
    case Proto::UINT64:
      return named("uint64");
    case Proto::STRING:
      return named("strings");
    case Proto::COMPLEX64:
    case Proto::COMPLEX128:
      return named("complex numbers");
    default:
      return named("data type " + std::to_string(data_type));
  }
}

}  // namespace kiln
