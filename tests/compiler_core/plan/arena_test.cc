// The arenas of real programs, beside what no arena can do without and what no arena would take.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/memory.h"
#include "compiler_core/plan/plan.h"

namespace kiln {
namespace {

struct Arena {
  std::string program;
  int64_t bytes = 0, temporaries = 0, live = 0;
  int count = 0;  // of temporaries
};

std::vector<Lifetime> temporaries_of(const Plan& plan) {
  std::vector<Lifetime> lives(plan.buffers.size(), Lifetime{0, -1, -1});
  for (int i = 0; i < static_cast<int>(plan.launches.size()); ++i)
    for (const int arg : plan.launches[static_cast<size_t>(i)].args) {
      Lifetime& life = lives[static_cast<size_t>(arg)];
      if (life.first < 0) life.first = i;
      life.last = i;
    }
  std::vector<Lifetime> temporaries;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.kind != Buffer::Kind::kTemporary || lives[i].first < 0) continue;
    lives[i].bytes = numel(buffer.spec.shape).constant() * size_of(buffer.spec.dtype);
    temporaries.push_back(lives[i]);
  }
  return temporaries;
}

// Of the programs in tests/graphs/`folder` that plan with constant sizes.
std::vector<Arena> arenas(const std::string& folder) {
  std::vector<Arena> all;
  const Path root = Path(KILN_SOURCE_DIR) / "tests/graphs" / folder;
  for (const auto& file : std::filesystem::directory_iterator(root)) {
    if (file.path().extension() != ".pt2") continue;
    const auto program = read_graph_file(file.path());
    if (!program || !program->graph.symbols().empty()) continue;
    const auto form = normalise(program->graph);
    if (!form) continue;
    const auto made = plan(form->graph);
    if (!made || !made->arena_bytes.is_constant()) continue;
    const std::vector<Lifetime> lives = temporaries_of(*made);
    Arena arena{file.path().filename(), made->arena_bytes.constant(), 0, most_live_bytes(lives),
                static_cast<int>(lives.size())};
    for (const Lifetime& life : lives) arena.temporaries += life.bytes;
    all.push_back(std::move(arena));
  }
  return all;
}

TEST(Arena, IsHardlyMoreThanWhatIsAliveAtOnce) {
  for (const char* folder : {"small", "bench", "large"})
    for (const Arena& arena : arenas(folder)) {
      EXPECT_GE(arena.bytes, arena.live) << arena.program;
      EXPECT_LE(static_cast<double>(arena.bytes), 1.1 * static_cast<double>(arena.live))
          << arena.program << " of " << arena.count << " temporaries";
    }
}

TEST(Arena, IsHalfOfItsTemporariesInTheMean) {
  double logs = 0;
  int programs = 0;
  std::string ratios;
  for (const Arena& arena : arenas("small")) {
    if (arena.count < 3) continue;
    const double ratio = static_cast<double>(arena.bytes) / static_cast<double>(arena.temporaries);
    logs += std::log(ratio);
    ++programs;
    ratios += arena.program + " " + std::to_string(ratio) + "\n";
  }
  ASSERT_GE(programs, 3);
  EXPECT_LE(std::exp(logs / programs), 0.5) << ratios;
}

}  // namespace
}  // namespace kiln
