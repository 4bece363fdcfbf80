// The client library with nobody to ask: local tier, fallback, breaker, buffers.
#include "client/client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "client/local_tier.h"
#include "compiler_core/base/file.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

// tanh(a) - b: the order of inputs matters.
Graph difference(int64_t rows) {
  GraphBuilder builder;
  const NodeId a = builder.input(DType::kF32, {rows, 5});
  const NodeId b = builder.input(DType::kF32, {rows, 5});
  return *builder.finish({builder.binary(Op::kSub, builder.unary(Op::kTanh, a), b)});
}

Tensor filled(std::vector<int64_t> sizes, double first) {
  Tensor tensor(DType::kF32, std::move(sizes));
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, first + 0.01 * static_cast<double>(i));
  return tensor;
}

std::unique_ptr<Client> make_client(ClientOptions options = {}) {
  auto client = Client::create(std::move(options));
  EXPECT_TRUE(client) << client.error().message;
  return *std::move(client);
}

TEST(Client, CompilesHereWhenThereIsNoServiceAndGivesTheOraclesAnswer) {
  const Graph graph = difference(7);
  auto program = make_client()->compile(graph, {});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ((*program)->outcome(), Outcome::kLocal);
  const Tensor a = filled({7, 5}, -1), b = filled({7, 5}, 3);
  const Tensor* inputs[] = {&a, &b};
  const auto outputs = (*program)->run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  const auto expected = interpret(graph, inputs);
  for (int64_t i = 0; i < a.numel(); ++i)
    EXPECT_NEAR((*outputs)[0].get(i), (*expected)[0].get(i), 1e-5);
}

TEST(Client, WrongBuffersAreRefusedByName) {
  auto program = make_client()->compile(difference(7), {});
  ASSERT_TRUE(program);
  const Tensor good = filled({7, 5}, 0), rows = filled({6, 5}, 0), type(DType::kF64, {7, 5});
  const Tensor* count[] = {&good};
  const Tensor* shape[] = {&good, &rows};
  const Tensor* dtype[] = {&type, &good};
  EXPECT_EQ((*program)->run(count).error().code, Code::kInvalidArgument);
  EXPECT_NE((*program)->run(shape).error().message.find("input 1 is f32[6,5]"), std::string::npos);
  EXPECT_NE((*program)->run(dtype).error().message.find("input 0 is f64"), std::string::npos);
  const Tensor* inputs[] = {&good, &good};
  Tensor small = filled({1, 5}, 0);
  Tensor* outputs[] = {&small};
  EXPECT_EQ((*program)->run(inputs, outputs).error().code, Code::kInvalidArgument);
}

TEST(Client, TheLocalTierServesANewClient) {
  const auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  ClientOptions options;
  options.cache_dir = dir->path() / "tier";
  ASSERT_TRUE(make_client(options)->compile(difference(3), {}));
  options.allow_fallback = false;
  auto again = make_client(options)->compile(difference(3), {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->outcome(), Outcome::kHit);
  EXPECT_FALSE(make_client(options)->compile(difference(4), {}));
}

// The digest is all that a replica needs where somebody has compiled the program; its inputs are numbered as it
// says, or as the program has them.
TEST(Client, AProgramIsLoadedByTheDigestOfItsGraph) {
  const auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  ClientOptions options;
  options.cache_dir = dir->path() / "tier";
  const auto compiled = make_client(options)->compile(difference(3), {});
  ASSERT_TRUE(compiled);
  const Digest graph = (*compiled)->program().graph;
  options.compiler = "/bin/false";
  const auto client = make_client(options);
  const Tensor a = filled({3, 5}, -1), b = filled({3, 5}, 3), unread = filled({1}, 0);
  const auto order = (*compiled)->input_order();
  std::vector<int> places(3, -1);  // the caller has one more, in the middle
  for (size_t place = 0; place < 2; ++place)
    places[order[place] == 0 ? 0 : 2] = static_cast<int>(place);
  const auto expected = (*compiled)->run(std::vector<const Tensor*>{&a, &b});
  const auto named = client->load(graph, {}, places);
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ((*named)->outcome(), Outcome::kHit);
  const auto outputs = (*named)->run(std::vector<const Tensor*>{&a, &unread, &b});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_TRUE(std::ranges::equal((*outputs)[0].bytes(), (*expected)[0].bytes()));
  const auto own = client->load(graph, {});
  ASSERT_TRUE(own) << own.error().message;
  const Tensor* given[] = {&a, &b};
  const auto same = (*own)->run(std::vector<const Tensor*>{given[order[0]], given[order[1]]});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(std::ranges::equal((*same)[0].bytes(), (*expected)[0].bytes()));
  for (const std::vector<int>& wrong : {std::vector{0}, {0, 0}, {0, 1, 2}, {0, 2}, {-1, -1}})
    EXPECT_EQ(client->load(graph, {}, wrong).error().code, Code::kInvalidArgument);
}

TEST(Client, ADigestThatNobodyHasIsAMissThatSaysWhatToDo) {
  const auto missed = make_client()->load(Digest::of("a graph"), {.mode = Mode::kMaxAutotune});
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code, Code::kNotFound);
  for (const char* part : {"cpu", "max-autotune", "send the graph once", "kiln warm"})
    EXPECT_NE(missed.error().message.find(part), std::string::npos) << missed.error().message;
}

// Puts what `tier` has of one program there once more, for `mode`, as made with other templates.
void keep_as_stale(const Path& tier, Mode mode) {
  const auto local = LocalTier::open(tier).value();
  for (const auto& entry : std::filesystem::directory_iterator(tier / "programs")) {
    if (entry.path().extension() != ".json") continue;
    const Digest key = Digest::parse(entry.path().stem().string()).value();
    ProgramFiles files = local->get(key, "").value();
    Program& program = files.program;
    program.template_stamp = Digest::of("of an earlier build");
    program.mode = mode;
    program.key = program_key(program.graph, program.target, mode);
    files.manifest.clear();
    ASSERT_TRUE(local->put(program.key, files));
    return;
  }
  FAIL() << "the tier has no program";
}

// A tuned one is right, and better than what is not tuned; what needs no tuning is made anew.
TEST(Client, AStaleProgramOfTheTierServesOnlyWhereNobodyCanMakeItsSuccessor) {
  const auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  ClientOptions options;
  options.cache_dir = dir->path() / "tier";
  ASSERT_TRUE(make_client(options)->compile(difference(3), {}));
  keep_as_stale(options.cache_dir, Mode::kMaxAutotune);
  CompileOptions tuned;
  tuned.mode = Mode::kMaxAutotune;
  const auto served = make_client(options)->compile(difference(3), tuned);
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_EQ((*served)->outcome(), Outcome::kStale);
  CompileOptions strict = tuned;
  strict.strict = true;
  const auto made_anew = make_client(options)->compile(difference(3), strict);
  ASSERT_TRUE(made_anew) << made_anew.error().message;
  EXPECT_EQ((*made_anew)->outcome(), Outcome::kLocal);
  EXPECT_FALSE(make_client(options)->look_up(difference(3), tuned)) << "a look-up is a miss";
  const auto loaded = make_client(options)->load(normalise(difference(3))->digest, tuned);
  ASSERT_TRUE(loaded) << "who has no graph cannot make its successor: " << loaded.error().message;
  EXPECT_EQ((*loaded)->outcome(), Outcome::kStale);
  ClientOptions away = options;
  away.coordinator = "tcp://127.0.0.1:9";
  away.connect_timeout = std::chrono::milliseconds(100);
  EXPECT_TRUE(make_client(away)->compile(difference(3), tuned));

  keep_as_stale(options.cache_dir, Mode::kDefault);
  const auto made = make_client(options)->compile(difference(3), {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->outcome(), Outcome::kLocal);
}

TEST(Client, ADamagedLocalTierIsAMissNotAFailure) {
  const auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  ClientOptions options;
  options.cache_dir = dir->path();
  ASSERT_TRUE(make_client(options)->compile(difference(3), {}));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir->path())) {
    if (!entry.is_regular_file()) continue;
    std::string bytes = *read_file(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    ASSERT_TRUE(write_file(entry.path(), bytes));
  }
  auto again = make_client(options)->compile(difference(3), {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->outcome(), Outcome::kLocal);
}

TEST(Client, AServiceThatIsAwayTripsTheBreaker) {
  ClientOptions options;
  options.coordinator = "tcp://127.0.0.1:9";
  options.connect_timeout = std::chrono::milliseconds(100);
  options.allow_fallback = false;
  const auto client = make_client(options);
  EXPECT_EQ(client->service_state(), ServiceState::kUnknown);
  bool is_away = false;
  std::string second;
  // It asks again after five seconds, for which this machine may stand still.
  for (int tries = 0; tries < 5 && (!is_away || second.find("a moment ago") == second.npos);
       ++tries) {
    EXPECT_EQ(client->compile(difference(3), {}).error().code, Code::kUnavailable);
    is_away = client->service_state() == ServiceState::kAway;
    second = client->compile(difference(3), {}).error().message;
  }
  EXPECT_TRUE(is_away);
  EXPECT_NE(second.find("a moment ago"), std::string::npos) << second;
}

TEST(Client, ThreadsMayShareOne) {
  const auto client = make_client();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&client, t] {
      auto program = client->compile(difference(2 + t % 2), {});
      ASSERT_TRUE(program) << program.error().message;
      const Tensor a = filled({2 + t % 2, 5}, 0);
      const Tensor* inputs[] = {&a, &a};
      for (int i = 0; i < 50; ++i) ASSERT_TRUE((*program)->run(inputs));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Client, NaNAndInfinityFollowPyTorch) {
  const Graph graph = difference(1);
  auto program = make_client()->compile(graph, {});
  ASSERT_TRUE(program);
  const double infinity = std::numeric_limits<double>::infinity();
  Tensor a(DType::kF32, {1, 5}), b(DType::kF32, {1, 5});
  for (int64_t i = 0; i < 5; ++i)
    a.set(i, std::array{std::nan(""), infinity, -infinity, 0.0, 1.0}[static_cast<size_t>(i)]);
  b.set(3, infinity);
  const Tensor* inputs[] = {&a, &b};
  const auto outputs = (*program)->run(inputs);
  ASSERT_TRUE(outputs);
  EXPECT_TRUE(std::isnan((*outputs)[0].get(0)));
  EXPECT_EQ((*outputs)[0].get(1), 1);
  EXPECT_EQ((*outputs)[0].get(2), -1);
  EXPECT_EQ((*outputs)[0].get(3), -infinity);
}

}  // namespace
}  // namespace kiln
