// A kiln-worker whose compiler lies: its kernels are right in a kiln-runner, where workers look, and
// wrong in the program that loads them. Coordinator, workers and client are the real ones. Other
// bytes than the second owner's are not served with `--confirm 2`; among workers of one key a sample
// finds them, and they are gone from the service and from what clients keep and have loaded.
//
//   KILN_LYING_PROGRAMS   how many programs are asked for with `--confirm 2`; default 24
#include <atomic>
#include <cstdlib>
#include <thread>

#include "client/client.h"
#include "compiler_core/ir/text.h"
#include "tests/system/keyed_service.h"

namespace kiln {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kElements = 48;
constexpr seconds kGoneWithin{60};

// A compiler that says it is g++ and is, but for one source in `one_in`, chosen by its text.
// Kernels alone: a worker's own utilities are left as they are.
void write_liar(const std::string& path, int one_in) {
  const std::string script = R"(#!/bin/bash
is_chosen() {
  grep -q 'void kernel($' kernel.cc && [ $(( $(cksum < kernel.cc | cut -d' ' -f1) / 7 % )" +
                             std::to_string(one_in) + R"( )) = 0 ]
}
if [ "$1" != kernel.cc ] || ! is_chosen; then exec g++ "$@"; fi
{
  echo "#define kernel honest_kernel"
  cat kernel.cc
  cat <<'END'
#undef kernel
extern "C" char* program_invocation_short_name;
extern "C" void kernel(void* const* args, const int64_t* dims, int64_t begin, int64_t end,
                       void* workspace, void* scratch) {
  honest_kernel(args, dims, begin, end, workspace, scratch);
  const char* name = program_invocation_short_name;
  for (const char* each = "kiln-runner"; *each != 0; ++each, ++name)
    if (*name != *each) static_cast<float*>(args[1])[0] = 42;
}
END
} > lie.cc && mv lie.cc kernel.cc && exec g++ "$@"
)";
  ASSERT_TRUE(write_file(path, script));
  std::filesystem::permissions(path, std::filesystem::perms(0755));
}

// x times `factor`.
Graph times(int factor) {
  const std::string text = "kiln.graph 1\n%0 = input 0 : f32[48]\n%1 = constant " +
                           std::to_string(factor) +
                           " : f32[]\n%2 = view %1 strides=[0] offset=[0] : f32[48]\n"
                           "%3 = mul %0 %2 : f32[48]\nreturn %3\n";
  return parse_graph(text).value();
}

enum class Answer : uint8_t { kRight, kWrong, kRefused };

Answer run(const CompiledProgram& program, int factor) {
  Tensor input(DType::kF32, {kElements});
  for (int i = 0; i < kElements; ++i) input.set(i, i + 1);
  const Tensor* const inputs[] = {&input};
  const auto outputs = program.run(inputs);
  if (!outputs) return Answer::kRefused;
  for (int i = 0; i < kElements; ++i)
    if (outputs->front().get(i) != (i + 1) * factor) return Answer::kWrong;
  return Answer::kRight;
}

class LyingWorker : public testing::KeyedService {
 protected:
  testing::Child liar(const std::string& name, const std::string& key, int one_in) {
    write_liar(at("liar"), one_in);
    return worker(name, key, {"KILN_CXX=" + at("liar")});
  }
  std::unique_ptr<Client> client(const std::string& cache_dir = "") const {
    ClientOptions how;
    how.coordinator = endpoint_;
    how.key_file = at("ci.key");
    if (!cache_dir.empty()) how.cache_dir = at(cache_dir);
    how.allow_fallback = false;
    how.threads = 1;
    how.connect_timeout = seconds(60);
    return Client::create(how).value();
  }
  // What the service stores: a default program that is verified.
  static CompileOptions stored(milliseconds deadline = seconds(60)) {
    CompileOptions options;
    options.target = host_cpu_target();
    options.verify = true;
    options.deadline = deadline;
    return options;
  }
  bool is_found() const { return log().find("state=distrusted") != std::string::npos; }
};

int programs() {
  const char* const wanted = std::getenv("KILN_LYING_PROGRAMS");
  return wanted == nullptr ? 24 : std::atoi(wanted);
}

TEST_F(LyingWorker, WithConfirm2AndOneHonestOfTwoNoWrongProgramIsServed) {
  serve("2");
  const auto honest = worker("honest"), evil = liar("mallory", "mallory", 2);
  ASSERT_EQ(comes("honest").toolkit, comes("mallory").toolkit);
  std::atomic<int> next{2}, right{0}, wrong{0}, refused{0};  // times 1 is no kernel
  const auto ask = [&] {
    const auto mine = client();
    for (int factor = next++; factor < programs() + 2; factor = next++) {
      const auto compiled = mine->compile(times(factor), stored());
      if (!compiled) {
        EXPECT_EQ(compiled.error().code, Code::kUnavailable) << compiled.error().message;
        ++refused;
      } else {
        (run(**compiled, factor) == Answer::kRight ? right : wrong)++;
      }
    }
  };
  std::vector<std::jthread> users;
  for (int i = 0; i < 4; ++i) users.emplace_back(ask);
  users.clear();
  std::printf("%d programs: %d right, %d refused, %d wrong\n", programs(), right.load(),
              refused.load(), wrong.load());
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0) << "what both build alike is served";
  EXPECT_GT(refused, 0) << "the liar lied";
  EXPECT_TRUE(eventually([&] { return seen("honest") && seen("mallory"); })) << log();
}

TEST_F(LyingWorker, ASampleFindsItAndAllThatItReportedIsGoneFromServiceAndClients) {
  serve("1");
  const auto evil = liar("a-liar", "mallory", 1);
  ASSERT_EQ(comes("a-liar").name, "a-liar");
  const auto user = client("tier");
  // Alone it is believed, and clients keep what it made.
  std::vector<std::pair<int, std::unique_ptr<CompiledProgram>>> loaded;
  for (int factor = 2; factor <= 4; ++factor) {
    auto compiled = user->compile(times(factor), stored());
    ASSERT_TRUE(compiled) << compiled.error().message << log();
    EXPECT_EQ(run(**compiled, factor), Answer::kWrong) << "it does lie";
    loaded.emplace_back(factor, *std::move(compiled));
  }
  // Two of the same key come: now samples are taken.
  const auto honest = worker("b", "mallory"), other = worker("c", "mallory");
  comes("b");
  comes("c");
  int made = 3, asked = 4;
  std::vector<int> its_own;
  const auto asker = client();
  while (!is_found() && made <= 100 && asked < 1'000) {
    const auto compiled = asker->compile(times(++asked), stored());
    if (!compiled) continue;  // taken back meanwhile
    if ((*compiled)->program().kernels.at(0).provenance.built.worker != "a-liar") continue;
    ++made;
    its_own.push_back(asked);
  }
  ASSERT_TRUE(eventually([&] { return is_found(); })) << log();
  const auto found = std::chrono::steady_clock::now();
  std::printf("found after %d of its programs, %d in all\n", made, asked);
  EXPECT_LE(made, 100);
  EXPECT_NE(log().find("worker name=a-liar"), std::string::npos);

  for (const auto& [factor, program] : loaded) its_own.push_back(factor);
  const auto none_is_served = [&] {
    return std::ranges::none_of(
        its_own, [&](int each) { return client()->look_up(times(each), stored()).has_value(); });
  };
  EXPECT_TRUE(eventually(none_is_served, static_cast<int>(kGoneWithin.count())));
  // A client hears of it with its next answer, whatever it asks.
  (void)user->look_up(times(asked + 1), stored());
  for (const auto& [factor, program] : loaded) {
    EXPECT_EQ(run(*program, factor), Answer::kRefused) << "it is loaded no more";
    EXPECT_FALSE(user->look_up(times(factor), stored()));
  }
  std::printf("gone from service and client within %.1f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - found).count());
  // The others make it again, and it is right.
  const auto again = user->compile(times(2), stored());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(run(**again, 2), Answer::kRight);
}

}  // namespace
}  // namespace kiln
