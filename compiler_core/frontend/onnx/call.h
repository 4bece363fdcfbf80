// OnnxCall: one ONNX node as a lowering sees it: its operands by position, its attributes by name,
// and ATen's own lowerings to say what it means. Mistakes stick to the builder, as with Call.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler_core/frontend/expr.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/onnx/known_tensor.h"
#include "compiler_core/frontend/onnx/model.h"

namespace kiln {

// Where the operands of a node come from.
class OnnxOperands {
 public:
  virtual ~OnnxOperands() = default;
  // A node of the call's builder. REQUIRES: `name` is not empty.
  virtual NodeId tensor(std::string_view name) = 0;
  // Null when the elements are computed from data, or are many. The pointer lives as long as this.
  virtual const KnownTensor* known(std::string_view name) = 0;
  // The program holds for no larger value of the symbol.
  virtual void bound(SymbolId, int64_t /*most*/) {}
};

// `x` without its fraction; the nearest int64_t where it lies outside, 0 where it is NaN. A model may have any
// number, and a cast of these is undefined.
int64_t truncated(double x);

// An argument of an ATen op, by its schema's name.
struct AtenArgument {
  AtenArgument(std::string_view n, Expr x);  // none when it is no node
  AtenArgument(std::string_view n, const std::vector<Expr>& xs);
  AtenArgument(std::string_view n, Dim x) : name(n), value(std::move(x)) {}
  AtenArgument(std::string_view n, int64_t x) : name(n), value(Dim(x)) {}
  AtenArgument(std::string_view n, int x) : name(n), value(Dim(x)) {}
  AtenArgument(std::string_view n, bool x) : name(n), value(x) {}
  AtenArgument(std::string_view n, double x) : name(n), value(x) {}
  AtenArgument(std::string_view n, const char* x) : name(n), value(std::string_view(x)) {}
  AtenArgument(std::string_view n, std::string_view x) : name(n), value(x) {}
  AtenArgument(std::string_view n, std::vector<Dim> x) : name(n), value(std::move(x)) {}
  AtenArgument(std::string_view n, const std::vector<int64_t>& x)
      : name(n), value(std::vector<Dim>(x.begin(), x.end())) {}
  AtenArgument(std::string_view n, std::vector<double> x) : name(n), value(std::move(x)) {}

  std::string_view name;
  std::vector<NodeId> tensors;
  Argument value;  // the names of `tensors` are filled in by the call
  bool is_tensor = false, is_tensor_list = false;
};

class OnnxCall {
 public:
  // `version`: of the operator set. `symbols`: the program's.
  OnnxCall(GraphBuilder& builder, const OnnxNode& node, OnnxOperands& operands, int64_t version,
           std::span<const Symbol> symbols)
      : b(builder), node_(node), operands_(operands), version_(version), symbols_(symbols) {}

  GraphBuilder& b;

  int64_t version() const { return version_; }
  std::string_view op() const { return node_.op; }
  size_t input_count() const { return node_.inputs.size(); }
  size_t output_count() const { return node_.outputs.size(); }
  bool wants_output(size_t i) const {
    return i < node_.outputs.size() && !node_.outputs[i].empty();
  }
  std::span<const Symbol> symbols() const { return symbols_; }
  bool ok() const { return b.ok(); }

  bool has(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].empty(); }
  Expr tensor(size_t i);
  Expr optional_tensor(size_t i);  // no node when absent
  // For operands that the model must give as constants or sizes; `what` names one in the error.
  const KnownTensor* known(size_t i) const;  // null when it is not known
  std::vector<Dim> sizes(size_t i, std::string_view what);
  std::vector<int64_t> integers(size_t i, std::string_view what);
  std::vector<double> reals(size_t i, std::string_view what);
  std::optional<double> number(size_t i) const;  // of one known element

  const OnnxAttribute* attribute(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  int64_t required_integer(std::string_view name);
  double real(std::string_view name, double fallback) const;
  std::string_view text(std::string_view name, std::string_view fallback) const;
  bool flag(std::string_view name, bool fallback) const { return integer(name, fallback) != 0; }
  // Nothing when absent.
  std::optional<std::vector<int64_t>> list(std::string_view name) const;
  DType dtype(std::string_view name, DType fallback);

  // `given` counted from the front; a scalar has no axes.
  int axis(int64_t given, size_t rank);
  std::vector<int> axes(const std::vector<int64_t>& given, size_t rank);  // ascending
  // `dim` is never negative, whatever the symbols.
  bool is_never_negative(const Dim& dim) const;
  // `part` of a constant size: where it may be more, its symbol gets a largest value, so that longer
  // inputs are refused when the program is called.
  void keep_within(const Dim& part, const Dim& size);

  Values aten_values(std::string_view target, const std::vector<AtenArgument>& arguments);
  Expr aten(std::string_view target, const std::vector<AtenArgument>& arguments);

  NodeId invalid(std::string why);      // the model contradicts itself
  NodeId unsupported(std::string why);  // this form of the op is not covered

 private:
  const OnnxNode& node_;
  OnnxOperands& operands_;
  int64_t version_;
  std::span<const Symbol> symbols_;
};

struct OnnxLowering {
  std::string_view op;
  Values (*lower)(OnnxCall&);
};

// One list a subject. A lowering with a single result may give {Expr}.id alone.
std::span<const OnnxLowering> onnx_arithmetic_lowerings();
std::span<const OnnxLowering> onnx_activation_lowerings();
std::span<const OnnxLowering> onnx_product_lowerings();
std::span<const OnnxLowering> onnx_normalisation_lowerings();
std::span<const OnnxLowering> onnx_reduction_lowerings();
std::span<const OnnxLowering> onnx_pooling_lowerings();
std::span<const OnnxLowering> onnx_view_lowerings();
std::span<const OnnxLowering> onnx_indexing_lowerings();
std::span<const OnnxLowering> onnx_creation_lowerings();
std::span<const OnnxLowering> onnx_resize_lowerings();
std::span<const OnnxLowering> onnx_quantised_lowerings();
// Null when the op is not covered.
const OnnxLowering* find_onnx_lowering(std::string_view op);

}  // namespace kiln
