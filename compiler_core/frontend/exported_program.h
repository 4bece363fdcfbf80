// ExportedProgram: an archive of torch.export.save, or an ONNX model: the graph, lowered to core
// ops, and the tensors that belong to it. Plain values; the functions may be called from any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

struct ExportedInput {
  // kSeed: an i64 scalar, the last input, there only when the program is random.
  enum class Kind : uint8_t { kUser, kParameter, kBuffer, kConstantTensor, kSeed };
  Kind kind = Kind::kUser;
  std::string name;  // the user's name: "net.0.weight", "x"
  DType dtype = DType::kF32;
  Shape shape;               // as the model sees it
  std::vector<Dim> strides;  // as exported. When not row-major dense, the graph's input is the flat
                             // storage and a View gives it `shape`
  std::string payload;       // path in the archive of the bytes, or where they lie in an ONNX
                             // model; empty for user inputs
  bool has_payload = false;  // a graph-only archive carries none
  // Where the elements lie in the payload, in elements. Meaningful with has_payload.
  int64_t payload_offset = 0;
  std::vector<int64_t> payload_strides;
};

// Whether the graph's input is the tensor itself, not a flat storage behind a View.
bool is_dense(const ExportedInput& input);

struct ExportedOutput {
  // kMutation: the new value of an input, named here; behind everything that the model returns.
  enum class Kind : uint8_t { kUser, kMutation };
  Kind kind = Kind::kUser;
  std::string name;
};

struct ExportedProgram {
  Graph graph;
  std::vector<ExportedInput> inputs;    // one per graph input, in order
  std::vector<ExportedOutput> outputs;  // one per graph output, in order
};

// Reads `path` and lowers its graph. Errors: kNotFound, kInvalidArgument (truncated, not a zip,
// another schema version, dangling references, overflowing shapes: the message says which and
// where), kUnsupported (an op or dtype Kiln does not cover: names the op, the line of the user's
// source from the archive, and what to do).
Result<ExportedProgram> read_exported_program(const std::filesystem::path& path);

// Reads any file format, recognised by content and not by name: a `.pt2` archive, an ONNX model
// (opsets 11 to 24), or Kiln's text form. Errors as for read_exported_program().
Result<ExportedProgram> read_graph_file(const std::filesystem::path& path);

// The same of bytes: an archive, an ONNX model without external data, the text form, or the archive's models/model.json alone.
Result<ExportedProgram> read_graph_bytes(std::string_view bytes);

// A node that Kiln does not cover, with the arguments it has.
struct RefusedNode {
  int node = 0;    // its place among the graph's nodes
  std::string op;  // "aten.nonzero.default"
  std::string why;
};
// Every such node of a models/model.json; what follows a refused node is judged as if its outputs
// were given. Errors as for read_exported_program(), but for those of single nodes.
Result<std::vector<RefusedNode>> refused_nodes(const std::string& model_json);

// The stored bytes of one parameter, buffer or constant as a dense tensor in the layout the graph's
// input expects. kNotFound when the archive has none.
Result<Tensor> read_payload(const std::filesystem::path& archive, const ExportedInput& input);

// `tensor`, which has `input`'s dtype and sizes, in the layout the graph's input expects: itself
// when that is dense, else the flat storage with the elements at `input.strides`.
Result<Tensor> to_input_layout(const Tensor& tensor, const ExportedInput& input);

}  // namespace kiln
