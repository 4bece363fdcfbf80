// ModelText: writes models/model.json node by node, and Pt2Maker the archive around it, so that a
// test says what it is about and nothing else.
#pragma once

#include <gtest/gtest.h>
#include <zip.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/frontend/torch_schemas.h"

namespace kiln::testing {

// ScalarType codes of the export schema.
inline constexpr int kLong = 5, kHalf = 6, kFloat = 7, kDouble = 8, kBool = 12, kBFloat16 = 13;
inline constexpr int kInt = 4, kByte = 1, kComplex = 10;
inline constexpr int kE4M3 = 29, kE8M0 = 33;

inline std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

// Arguments: {"name": "dim", "arg": {"as_int": 1}, "kind": 1}.
inline std::string argument(const std::string& name, const std::string& form,
                            const std::string& value) {
  return R"({"name":")" + name + R"(","arg":{")" + form + R"(":)" + value + R"(},"kind":1})";
}
inline std::string named(const std::string& name) {
  return R"({"name":")" + name + R"("})";
}
inline std::string tensor(const std::string& name, const std::string& value) {
  return argument(name, "as_tensor", named(value));
}
inline std::string tensors(const std::string& name, const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const std::string& value : values) items.push_back(named(value));
  return argument(name, "as_tensors", "[" + join(items) + "]");
}
inline std::string integer(const std::string& name, int64_t value) {
  return argument(name, "as_int", std::to_string(value));
}
inline std::string integers(const std::string& name, const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (int64_t value : values) items.push_back(std::to_string(value));
  return argument(name, "as_ints", "[" + join(items) + "]");
}
inline std::string real(const std::string& name, const std::string& value) {
  return argument(name, "as_float", value);
}
inline std::string flag(const std::string& name, bool value) {
  return argument(name, "as_bool", value ? "true" : "false");
}
inline std::string text(const std::string& name, const std::string& value) {
  return argument(name, "as_string", "\"" + value + "\"");
}
inline std::string dtype(const std::string& name, int code) {
  return argument(name, "as_scalar_type", std::to_string(code));
}
inline std::string none(const std::string& name) {
  return argument(name, "as_none", "true");
}

class ModelText {
 public:
  using Sizes = std::vector<std::string>;  // "4", or a symbol's name: "s0"

  static Sizes constants(const std::vector<int64_t>& sizes) {
    Sizes result;
    for (int64_t size : sizes) result.push_back(std::to_string(size));
    return result;
  }

  ModelText& input(const std::string& name, int code, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides = {}) {
    return symbolic_input(name, code, constants(sizes), constants(strides));
  }
  ModelText& symbolic_input(const std::string& name, int code, const Sizes& sizes,
                            const Sizes& strides = {}) {
    declare(name, code, sizes, strides);
    inputs_.push_back(R"({"as_tensor":)" + named(name) + "}");
    input_specs_.push_back(R"({"user_input":{"arg":{"as_tensor":)" + named(name) + "}}}");
    return *this;
  }
  ModelText& parameter(const std::string& name, int code, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides = {}) {
    declare("p_" + name, code, constants(sizes), constants(strides));
    inputs_.push_back(R"({"as_tensor":)" + named("p_" + name) + "}");
    input_specs_.push_back(R"({"parameter":{"arg":)" + named("p_" + name) +
                           R"(,"parameter_name":")" + name + "\"}}");
    return *this;
  }
  // A tensor that torch.export found in the model, which is the same in every call.
  ModelText& constant(const std::string& name, int code, const std::vector<int64_t>& sizes) {
    declare("c_" + name, code, constants(sizes), {});
    inputs_.push_back(R"({"as_tensor":)" + named("c_" + name) + "}");
    input_specs_.push_back(R"({"tensor_constant":{"arg":)" + named("c_" + name) +
                           R"(,"tensor_constant_name":")" + name + "\"}}");
    return *this;
  }

  // A node with one output. `arguments` are made by tensor(), integer() and so on.
  ModelText& node(const std::string& op, const std::vector<std::string>& arguments,
                  const std::string& output, int code, const std::vector<int64_t>& sizes) {
    return symbolic_node(op, arguments, output, code, constants(sizes));
  }
  ModelText& symbolic_node(const std::string& op, const std::vector<std::string>& arguments,
                           const std::string& output, int code, const Sizes& sizes) {
    declare(output, code, sizes, {});
    return raw_node(op, arguments, R"([{"as_tensor":)" + named(output) + "}]");
  }
  ModelText& raw_node(const std::string& op, const std::vector<std::string>& arguments,
                      const std::string& outputs) {
    expect_torch_names(op, arguments);
    const std::string root = op.starts_with("_operator.") ? "" : "torch.ops.";  // Python's own
    nodes_.push_back(R"({"target":")" + root + op + R"(","inputs":[)" + join(arguments) +
                     R"(],"outputs":)" + outputs + R"(,"metadata":{"stack_trace":)" + trace_ +
                     "}}");
    return *this;
  }

  ModelText& declare(const std::string& name, int code, const Sizes& sizes, Sizes strides = {}) {
    if (strides.empty()) {
      // Strides of outputs do not matter; those of constant inputs are row-major.
      int64_t stride = 1;
      for (size_t i = sizes.size(); i-- > 0;) {
        strides.insert(strides.begin(), std::to_string(stride));
        if (sizes[i][0] <= '9' && __builtin_mul_overflow(stride, std::stoll(sizes[i]), &stride))
          stride = 1;
      }
    }
    tensors_.push_back("\"" + name + R"(":{"dtype":)" + std::to_string(code) + R"(,"sizes":)" +
                       size_list(sizes) + R"(,"strides":)" + size_list(strides) +
                       R"(,"storage_offset":{"as_int":0},"layout":7})");
    return *this;
  }

  ModelText& output(const std::string& name) {
    output_specs_.push_back(R"({"user_output":{"arg":{"as_tensor":)" + named(name) + "}}}");
    return *this;
  }
  ModelText& output_spec(const std::string& json) {
    output_specs_.push_back(json);
    return *this;
  }
  ModelText& input_spec(const std::string& json) {
    input_specs_.push_back(json);
    return *this;
  }
  ModelText& range(const std::string& symbol, const std::string& bounds) {
    ranges_.push_back("\"" + symbol + "\":" + bounds);
    return *this;
  }
  ModelText& integer_value(const std::string& name, const std::string& symbol) {
    integers_.push_back("\"" + name + "\":" + size(symbol));
    return *this;
  }
  ModelText& schema_major(int major) {
    major_ = major;
    return *this;
  }
  ModelText& torch_version(const std::string& version) {
    torch_version_ = version;
    return *this;
  }
  // A JSON string, as the stack trace of the nodes that follow.
  ModelText& stack_trace(const std::string& json) {
    trace_ = json;
    return *this;
  }

  std::string json() const {
    return R"({"graph_module":{"graph":{"inputs":[)" + join(inputs_) + R"(],"nodes":[)" +
           join(nodes_) + R"(],"tensor_values":{)" + join(tensors_) + R"(},"sym_int_values":{)" +
           join(integers_) + R"(}},"signature":{"input_specs":[)" + join(input_specs_) +
           R"(],"output_specs":[)" + join(output_specs_) + R"(]}},"range_constraints":{)" +
           join(ranges_) + R"(},"schema_version":{"major":)" + std::to_string(major_) +
           R"(,"minor":17},"torch_version":")" + torch_version_ + R"("})";
  }

 private:
  // A test with other names than torch's would show that we read what torch never writes.
  static void expect_torch_names(const std::string& op, const std::vector<std::string>& arguments) {
    const auto schema = torch_schemas().find(op);
    if (schema == torch_schemas().end()) return;
    constexpr std::string_view kBefore = R"({"name":")";
    for (const std::string& argument : arguments) {
      if (!argument.starts_with(kBefore)) continue;
      const std::string name =
          argument.substr(kBefore.size(), argument.find('"', kBefore.size()) - kBefore.size());
      EXPECT_NE(std::find(schema->second.begin(), schema->second.end(), name), schema->second.end())
          << op << " has no argument '" << name << "'";
    }
  }

  static std::string size(const std::string& text) {
    if (text[0] != 's' && text[0] != 'u') return R"({"as_int":)" + text + "}";
    return R"x({"as_expr":{"expr_str":"Symbol(')x" + text +
           R"x(', positive=True, integer=True)","hint":{"as_int":4}}})x";
  }
  static std::string size_list(const Sizes& sizes) {
    std::vector<std::string> items;
    for (const std::string& each : sizes) items.push_back(size(each));
    return "[" + join(items) + "]";
  }

  std::vector<std::string> inputs_, nodes_, tensors_, integers_, input_specs_, output_specs_,
      ranges_;
  std::string torch_version_ = "2.11.0";
  std::string trace_ = "\"\"";
  int major_ = 8;
};

inline Result<ExportedProgram> lower(const std::string& json,
                                     const ConstantElements& elements = {}) {
  TRY(const ExportedModel model, parse_exported_model(json));
  return lower_exported_model(model, elements);
}

// What the model becomes, or why it becomes nothing.
inline std::string graph_text(const ModelText& model) {
  const auto program = lower(model.json());
  return program ? print(program->graph) : program.error().message;
}

// Writes a zip file of `entries` (name, content), stored or deflated.
inline void write_zip(const Path& path, const std::map<std::string, std::string>& entries) {
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  ASSERT_NE(archive, nullptr) << code;
  for (const auto& [name, content] : entries) {
    zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
    ASSERT_GE(zip_file_add(archive, name.c_str(), source, ZIP_FL_OVERWRITE), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

// The entries torch.export.save writes around a model without parameters.
inline std::map<std::string, std::string> archive_entries(const std::string& model) {
  return {{"m/models/model.json", model},
          {"m/byteorder", "little"},
          {"m/data/weights/model_weights_config.json", R"({"config":{}})"},
          {"m/data/constants/model_constants_config.json", R"({"config":{}})"}};
}

template <class T>
Tensor make_tensor(DType type, const std::vector<int64_t>& sizes, const std::vector<T>& values) {
  Tensor result(type, sizes);
  EXPECT_EQ(static_cast<size_t>(result.numel()), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    result.set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return result;
}

inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.numel(); ++i) values.push_back(tensor.get(i));
  return values;
}

}  // namespace kiln::testing
