#include "compiler_core/kernels/custom/custom.h"

#include <cctype>

#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"

namespace kiln {
namespace {

// Lanes of the vocabulary's vectors, for those who use it: 32 bytes of f32.
constexpr int kCpuLanes = 8;

}  // namespace

std::string users_cpu_text(const Graph& graph, const std::string& entry, const std::string& text,
                           const std::string& body) {
  return preamble(graph, kCpuLanes) + text + entry_function(entry, graph, body);
}

// Pruning reads generated text only: the user's stands aside as a line of its words.
std::string users_cuda_text(const Graph& graph, const std::string& entry, const std::string& text,
                            const std::string& words, int threads, const std::string& body) {
  std::string whole =
      needed_text(cuda_preamble(graph, 1) + words +
                  cuda_kernel(entry, graph, threads, 1, body, "", KernelStart::kAsTheBodySays));
  return whole.replace(whole.find(words), words.size(), text);
}

std::string words_of(std::string_view source) {
  std::string line = "#pragma kiln ";
  for (const char c : source)
    line += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ? c : ' ';
  return line + "\n";
}

}  // namespace kiln
