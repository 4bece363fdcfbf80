// From an archive to its digest: milliseconds to read (unzip, JSON, lowering) and to normalise and
// digest, each the median and the best of RUNS.
//
//   digest_bench [--json] [RUNS] FILE...      default: 30 runs of
//   tests/graphs/large/llama_16x2048.pt2
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Times {
  std::vector<double> ms;
  double median() {
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
  }
};

int measure(const std::string& file, int runs, bool json) {
  Times read, digest;
  int exported = 0, canonical = 0;
  for (int i = 0; i < runs; ++i) {
    const double start = now_ms();
    const auto program = kiln::read_graph_file(file);
    const double middle = now_ms();
    if (!program) {
      fmt::print(stderr, "{}\n", program.error().message);
      return 2;
    }
    const auto form = kiln::normalise(program->graph);
    const double end = now_ms();
    if (!form) {
      fmt::print(stderr, "{}: {}\n", file, form.error().message);
      return 2;
    }
    read.ms.push_back(middle - start);
    digest.ms.push_back(end - middle);
    exported = program->graph.size();
    canonical = form->graph.size();
  }
  const double read_median = read.median(), digest_median = digest.median();
  if (json)
    fmt::print(
        R"({{"file":"{}","nodes":{},"canonical_nodes":{},"read_ms":{:.3f},"digest_ms":{:.3f}}})"
        "\n",
        file, exported, canonical, read_median, digest_median);
  else
    fmt::print(
        "{}  {} nodes ({} canonical)  read {:.2f} ms (best {:.2f})  digest {:.2f} ms (best "
        "{:.2f})\n",
        file, exported, canonical, read_median, read.ms.front(), digest_median, digest.ms.front());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  int runs = 30;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json")
      json = true;
    else if (const int number = std::atoi(argv[i]); number > 0)
      runs = number;
    else
      files.emplace_back(argument);
  }
  if (files.empty()) files.emplace_back(KILN_GRAPHS_DIR "/large/llama_16x2048.pt2");
  for (const std::string& file : files)
    if (const int code = measure(file, runs, json); code != 0) return code;
  return 0;
}
