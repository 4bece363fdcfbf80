// Programs that are there at once and get better, with real processes: a max-autotune program that is
// asked for with `now` is answered as tier 0, and the tuned one takes its place between two calls,
// whoever is killed meanwhile. And programs of default mode that turn out wrong once they were answered.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/tiered_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/program/program.h"
#include "tests/support/loopback.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRows = 64, kColumns = 48;
constexpr seconds kTunedWithin{180};

// (x + y) * `factor`.
Graph scaled_sum(int factor) {
  return parse_graph(
             "kiln.graph 1\n%0 = input 0 : f32[64,48]\n%1 = input 1 : f32[64,48]\n%2 = constant " +
             std::to_string(factor) +
             " : f32[]\n%3 = view %2 strides=[0,0] offset=[0] : f32[64,48]\n"
             "%4 = add %0 %1 : f32[64,48]\n%5 = mul %4 %3 : f32[64,48]\nreturn %5\n")
      .value();
}

enum class Tier0Answer : uint8_t { kRight, kWrong, kRefused };

Tier0Answer run_once(const CompiledProgram& program, int factor) {
  Tensor x(DType::kF32, {kRows, kColumns}), y(DType::kF32, {kRows, kColumns});
  for (int i = 0; i < kRows * kColumns; ++i) {
    x.set(i, i);
    y.set(i, 1);
  }
  const Tensor* const inputs[] = {&x, &y};
  const auto outputs = program.run(inputs);
  if (!outputs) return Tier0Answer::kRefused;
  for (int i = 0; i < kRows * kColumns; ++i)
    if (outputs->front().get(i) != (i + 1) * factor) return Tier0Answer::kWrong;
  return Tier0Answer::kRight;
}

class Tier0 : public ::testing::Test {
 protected:
  Tier0() : dir_(*TempDir::create()), endpoint_("tcp://127.0.0.1:" + std::to_string(free_port())) {}

  Path file(const std::string& name) const { return dir_.path() / name; }
  Child coordinator() const {
    return Child::start({binary("kiln-coordinator"), "--data-dir", file("data").string(),
                         "--listen", endpoint_, "--http", "none"},
                        file("coordinator.out"), file("coordinator.log"));
  }
  Child worker(const std::string& name = "w", std::vector<std::string> environment = {}) const {
    environment.push_back("XDG_CACHE_HOME=" + file("cache").string());
    return Child::start({binary("kiln-worker"), "--coordinator", endpoint_, "--name", name},
                        file(name + ".out"), file(name + ".log"), environment);
  }
  std::string log() const { return read_file(file("coordinator.log")).value_or(""); }
  Finished kiln(std::vector<std::string> words) const {
    words.insert(words.begin(), binary("kiln"));
    words.insert(words.end(), {"--coordinator", endpoint_});
    return run(words, {}, 180);
  }
  std::shared_ptr<Client> client() const {
    ClientOptions how;
    how.coordinator = endpoint_;
    how.allow_fallback = false;
    how.threads = 1;
    how.connect_timeout = seconds(60);
    return Client::create(how).value();
  }
  static CompileOptions options(Mode mode) {
    CompileOptions options;
    options.target = host_cpu_target();
    options.mode = mode;
    options.deadline = seconds(60);
    return options;
  }
  // Tier 0 of scaled_sum(`factor`), which runs. Waits for the first worker.
  std::unique_ptr<TieredProgram> tier0(int factor) const {
    for (int tries = 0; tries < 240; ++tries) {
      auto made = TieredProgram::compile(client(), scaled_sum(factor), options(Mode::kMaxAutotune));
      if (!made && made.error().code == Code::kUnavailable) {
        std::this_thread::sleep_for(milliseconds(250));
        continue;
      }
      EXPECT_TRUE(made) << made.error().message << log();
      if (!made) return nullptr;
      EXPECT_EQ((*made)->first()->outcome(), Outcome::kTier0);
      EXPECT_EQ((*made)->first()->program().mode, Mode::kDefault);
      EXPECT_EQ(run_once(*(*made)->first(), factor), Tier0Answer::kRight);
      return *std::move(made);
    }
    ADD_FAILURE() << "no worker came\n" << log();
    return nullptr;
  }
  void expect_tuned(const TieredProgram& program, int factor) const {
    ASSERT_EQ(program.wait(kTunedWithin), TieredProgram::State::kTuned) << log();
    const auto now = program.current();
    EXPECT_NE(now, program.first());
    EXPECT_EQ(now->program().mode, Mode::kMaxAutotune);
    EXPECT_GT(now->program().kernels.at(0).report.best_us, 0) << "it was measured";
    EXPECT_EQ(run_once(*now, factor), Tier0Answer::kRight);
    EXPECT_EQ(run_once(*program.first(), factor), Tier0Answer::kRight) << "whoever still has it";
  }

  const TempDir dir_;
  const std::string endpoint_;
};

TEST_F(Tier0, CallsOfSeveralThreadsStayRightWhileTheTunedProgramTakesItsPlace) {
  const Child service = coordinator(), tuner = worker();
  const auto program = tier0(2);
  ASSERT_NE(program, nullptr);
  std::atomic<int> right{0}, wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      while (!stop) (run_once(*program->current(), 2) == Tier0Answer::kRight ? right : wrong)++;
    });
  expect_tuned(*program, 2);
  const int before = right;
  while (right < before + 100 && wrong == 0) std::this_thread::sleep_for(milliseconds(10));
  stop = true;
  callers.clear();
  EXPECT_EQ(wrong, 0);
  const auto again = client()->compile(scaled_sum(2), options(Mode::kMaxAutotune));
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->outcome(), Outcome::kHit);
}

TEST_F(Tier0, ItIsTunedThoughTheCoordinatorIsKilled) {
  Child service = coordinator();
  const Child tuner = worker();
  const auto program = tier0(3);
  ASSERT_NE(program, nullptr);
  service.signal(SIGKILL);
  service.wait();
  EXPECT_EQ(run_once(*program->current(), 3), Tier0Answer::kRight) << "calls need no service";
  service = coordinator();
  expect_tuned(*program, 3);
}

TEST_F(Tier0, ItIsTunedThoughTheWorkerIsKilled) {
  const Child service = coordinator();
  Child tuner = worker();
  const auto program = tier0(4);
  ASSERT_NE(program, nullptr);
  tuner.signal(SIGKILL);
  tuner.wait();
  const Child other = worker("other");
  expect_tuned(*program, 4);
}

TEST_F(Tier0, TheCommandSaysSoAndTheServiceTunesThoughItEnded) {
  const Child service = coordinator(), tuner = worker();
  ASSERT_NE(tier0(5), nullptr);  // a worker is there
  const std::string graph = small_graph("linear_bias_gelu.pt2");
  const Finished first =
      kiln({"compile", graph, "--mode", "max-autotune", "--now", "--no-fallback", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err << log();
  EXPECT_EQ(first.json()["cache"], "tier0");
  EXPECT_EQ(first.json()["mode"], "default");
  const auto stored = [&] {
    return kiln({"compile", graph, "--mode", "max-autotune", "--check"}).exit_code == 0;
  };
  for (int tries = 0; tries < 600 && !stored(); ++tries)
    std::this_thread::sleep_for(milliseconds(200));
  const Finished then = kiln({"run", graph, "--mode", "max-autotune", "--now", "--no-fallback",
                              "--json", "--expect", small_graph("linear_bias_gelu.safetensors")});
  EXPECT_EQ(then.exit_code, 0) << then.out << then.err;
  EXPECT_EQ(then.json()["cache"], "hit");
  EXPECT_GE(kiln({"stats", "--json"}).json()["answered_tier0"].get<int>(), 2);
}

TEST_F(Tier0, NowIsForMaxAutotune) {
  const Finished refused =
      kiln({"compile", small_graph("linear_bias_gelu.pt2"), "--now", "--no-fallback"});
  EXPECT_EQ(refused.exit_code, 2) << refused.out;
  EXPECT_NE(refused.err.find("max-autotune"), std::string::npos) << refused.err;
}

// A compiler that says it is g++ and is, but for every second source of a kernel, chosen by its text.
void write_liar(const Path& path) {
  ASSERT_TRUE(write_file(path, R"(#!/bin/bash
is_chosen() {
  grep -q 'void kernel($' kernel.cc && [ $(( $(cksum < kernel.cc | cut -d' ' -f1) / 7 % 2 )) = 0 ]
}
if [ "$1" != kernel.cc ] || ! is_chosen; then exec g++ "$@"; fi
{
  echo "#define kernel honest_kernel"
  cat kernel.cc
  cat <<'END'
#undef kernel
extern "C" void kernel(void* const* args, const int64_t* dims, int64_t begin, int64_t end,
                       void* workspace, void* scratch) {
  honest_kernel(args, dims, begin, end, workspace, scratch);
  static_cast<float*>(args[2])[0] = 42;
}
END
} > lie.cc && mv lie.cc kernel.cc && exec g++ "$@"
)"));
  std::filesystem::permissions(path, std::filesystem::perms(0755));
}

using EarlyWithdrawal = Tier0;

TEST_F(EarlyWithdrawal, UsersOfAWrongFirstChoiceHearOfItAndTheNextRequestGetsTheNextChoice) {
  constexpr int kPrograms = 24;
  write_liar(file("liar"));
  const Child service = coordinator();
  const Child builder = worker("w", {"KILN_CXX=" + file("liar").string()});
  const auto user = client();
  // Until the worker is there.
  for (int tries = 0; tries < 240 && log().find("state=here") == std::string::npos; ++tries)
    std::this_thread::sleep_for(milliseconds(250));
  int withdrawn = 0, replaced = 0;
  for (int factor = 2; factor < 2 + kPrograms && replaced < 2; ++factor) {
    const auto early = user->compile(scaled_sum(factor), options(Mode::kDefault));
    if (!early) continue;  // it was found wrong meanwhile, and no choice is left
    if (run_once(**early, factor) != Tier0Answer::kWrong) continue;
    EXPECT_FALSE((*early)->verified());
    ++withdrawn;
    // The request for the verified program is answered when the first choice was found wrong.
    CompileOptions verified = options(Mode::kDefault);
    verified.verify = true;
    const auto next = client()->compile(scaled_sum(factor), verified);
    // A client hears of it with its next answer, whatever it asks.
    for (int tries = 0; tries < 600 && run_once(**early, factor) != Tier0Answer::kRefused;
         ++tries) {
      (void)user->look_up(scaled_sum(factor + 1'000 + tries), options(Mode::kDefault));
      std::this_thread::sleep_for(milliseconds(100));
    }
    EXPECT_EQ(run_once(**early, factor), Tier0Answer::kRefused) << "it is loaded no more\n"
                                                                << log();
    if (!next) continue;  // every choice was one of the liar's
    ++replaced;
    EXPECT_TRUE((*next)->verified());
    EXPECT_EQ(run_once(**next, factor), Tier0Answer::kRight);
    EXPECT_NE((*next)->program().kernels.at(0).schedule,
              (*early)->program().kernels.at(0).schedule);
    const auto again = user->compile(scaled_sum(factor), options(Mode::kDefault));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(run_once(**again, factor), Tier0Answer::kRight);
  }
  EXPECT_GT(replaced, 0) << withdrawn << " first choices were wrong\n" << log();
  EXPECT_GE(kiln({"stats", "--json"}).json()["withdrawn"].get<int>(), withdrawn);
}

}  // namespace
}  // namespace kiln::testing
