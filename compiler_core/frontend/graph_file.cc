#include "compiler_core/frontend/exported_program.h"

#include <array>
#include <fstream>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/onnx/onnx_program.h"
#include "compiler_core/frontend/pt2_archive.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

constexpr std::string_view kTextHeader = "kiln.graph ";
// The text of a graph of some million nodes.
constexpr uintmax_t kMaxGraphBytes = uintmax_t{256} << 20;

ExportedProgram as_program(Graph graph) {
  ExportedProgram program;
  for (const NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    ExportedInput input;
    input.name = "in" + std::to_string(program.inputs.size());
    input.dtype = node.dtype;
    input.shape = node.shape;
    input.strides = contiguous_strides(node.shape);
    program.inputs.push_back(std::move(input));
  }
  program.outputs.resize(graph.outputs().size());
  program.graph = std::move(graph);
  return program;
}

Result<ExportedProgram> read_text(const std::string& text) {
  TRY(Graph graph, parse_graph(text));
  return as_program(std::move(graph));
}

}  // namespace

Result<ExportedProgram> read_graph_bytes(std::string_view bytes) {
  if (bytes.starts_with("PK")) {
    TRY(const Pt2Archive archive, Pt2Archive::of_bytes(bytes));
    return read_archive(archive);
  }
  if (is_onnx(bytes)) return read_onnx_bytes(bytes, std::nullopt);
  if (bytes.size() > kMaxGraphBytes)
    return fail(Code::kInvalidArgument, "the graph is too large: more than 256 MiB");
  if (bytes.starts_with(kTextHeader)) return read_text(std::string(bytes));
  std::string json;
  json.reserve(bytes.size() + json_padding());
  json = bytes;
  TRY(const ExportedModel model, parse_exported_model(json));
  return lower_exported_model(model);
}

Result<std::vector<RefusedNode>> refused_nodes(const std::string& model_json) {
  TRY(const ExportedModel model, parse_exported_model(model_json));
  return refused_nodes_of(model);
}

Result<ExportedProgram> read_graph_file(const Path& path) {
  std::array<char, kTextHeader.size()> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  const std::string_view head(first.data(), first.size());
  if (is_onnx(head)) return read_onnx_file(path);
  if (head != kTextHeader) return read_exported_program(path);
  std::error_code error;
  if (std::filesystem::file_size(path, error) > kMaxGraphBytes || error)
    return fail(Code::kInvalidArgument, path.string() + " is too large for a graph's text form");
  TRY(const std::string text, read_file(path));
  auto program = read_text(text);
  if (!program) return fail(program.error().within(path.string()));
  return program;
}

}  // namespace kiln
