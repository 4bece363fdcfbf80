#include "compiler_core/frontend/other_formats.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr char kExport[] =
    "torch.export.save(torch.export.export(model.eval(), (example_input,)), 'model.pt2')";

std::string export_model(std::string_view what) {
  return std::string(what) + "; in Python: " + kExport;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Eight bytes of length, then JSON.
bool is_safetensors(std::string_view head) {
  return head.size() > 9 && head[8] == '{' && head[7] == '\0' && head[6] == '\0';
}

}  // namespace

std::string describe_other_file(std::string_view head) {
  if (is_safetensors(head))
    return export_model(
        " holds tensors only (safetensors): load them into the model, and export that");
  if (head.starts_with("GGUF"))
    return export_model(" holds weights only (GGUF): Kiln reads programs, of PyTorch");
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return export_model(
        " is a pickle, and unpickling runs code: load it where you trust it, and export the model");
  return " is not a zip archive and no ONNX model; torch.export.save writes the .pt2 files "
         "that Kiln reads";
}

std::string describe_other_archive(std::span<const std::string> names, std::string_view pickle) {
  const auto any = [&](std::string_view part) {
    return std::ranges::any_of(names, [&](const std::string& name) { return has(name, part); });
  };
  if (any("serialized_exported_program.json"))
    return " was written by torch.export.save of PyTorch 2.7 or earlier; write it again with 2.8 "
           "or "
           "later";
  if (any("data/aotinductor/"))
    return " is a package of AOTInductor, which has compiled code and no graph; write the exported "
           "program with torch.export.save";
  if (any("constants.pkl") && any("code/"))
    return export_model(" is TorchScript (torch.jit.save): export the model itself");
  if (!pickle.empty() && (has(pickle, "_modules") || has(pickle, "_parameters")))
    return export_model(
        " is a pickled nn.Module (torch.save), and unpickling runs code: load it where you trust "
        "it, and export it");
  if (!pickle.empty())
    return export_model(
        " holds weights only (torch.save of a state_dict): load them into the model, and export "
        "that");
  return " is a zip archive without models/model.json; write it with torch.export.save of "
         "PyTorch 2.8 or later";
}

}  // namespace kiln
