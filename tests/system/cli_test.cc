// The command line as scripts depend on it: names, fields, exit codes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "tests/support/http_get.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

class Cli : public ::testing::Test {
 protected:
  Cli() : dir_(*TempDir::create()) {}

  Service& service(std::vector<std::string> more = {}) {
    if (!service_) service_.emplace(dir_.path() / "data", std::move(more));
    EXPECT_FALSE(service_->endpoint().empty()) << service_->log();
    return *service_;
  }
  Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    if (!service_) return run(arguments);
    return ask(arguments, {"KILN_COORDINATOR=" + service_->endpoint()});
  }
  json stats() { return kiln({"stats", "--json"}).json(); }
  Path write(const std::string& name, std::string_view text) {
    EXPECT_TRUE(write_file(dir_.path() / name, text));
    return dir_.path() / name;
  }

  TempDir dir_;
  std::optional<Service> service_;
};

TEST_F(Cli, TunedThenHitThenCheck) {
  service();
  const std::string file = small_graph("softmax.pt2");
  EXPECT_EQ(kiln({"compile", file, "--mode", "max-autotune", "--check"}).exit_code, 4);
  const Finished tuned = kiln({"compile", file, "--mode", "max-autotune", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service().log();
  const json first = tuned.json();
  EXPECT_EQ(first["cache"], "tuned");
  EXPECT_EQ(first["file"], file);
  EXPECT_EQ(first["graph_digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(first["program_key"].get<std::string>().size(), 64u);
  ASSERT_EQ(first["kernels"].size(), 1u);
  const json& kernel = first["kernels"][0];
  EXPECT_EQ(kernel["family"], "row_reduction");
  EXPECT_GT(kernel["candidates"].get<int>(), 1);
  EXPECT_GT(kernel["measured"].get<int>(), 0);
  EXPECT_EQ(kernel["rejected"].get<int>(), 0) << tuned.out;
  EXPECT_GT(kernel["best_us"].get<double>(), 0);
  EXPECT_GE(kernel["first_us"].get<double>(), kernel["best_us"].get<double>() * 0.99);
  EXPECT_FALSE(kernel["schedule"].get<std::string>().empty());

  const Finished again = kiln({"compile", file, "--mode", "max-autotune", "--json"});
  EXPECT_EQ(again.json()["cache"], "hit");
  EXPECT_EQ(again.json()["kernels"], first["kernels"]);
  EXPECT_EQ(kiln({"compile", file, "--mode", "max-autotune", "--check"}).exit_code, 0);

  const json totals = stats();
  for (const char* field :
       {"hits", "misses", "joined", "candidates_compiled", "candidates_measured", "flights_open",
        "retries", "workers", "entries", "bytes"})
    EXPECT_TRUE(totals.contains(field)) << field;
  EXPECT_EQ(totals["candidates_compiled"], kernel["candidates"]);
  EXPECT_EQ(totals["workers"].size(), 1u);
}

TEST_F(Cli, FiftyClientsAtOnceCompileEachCandidateOnce) {
  service();
  const std::string file = small_graph("linear_bias_gelu.pt2");
  std::vector<std::thread> clients;
  std::vector<Finished> answers(50);
  for (Finished& answer : answers)
    clients.emplace_back([&] {
      answer = kiln({"compile", file, "--mode", "max-autotune", "--no-fallback", "--json"});
    });
  for (std::thread& client : clients) client.join();
  int tuned = 0;
  for (const Finished& answer : answers) {
    ASSERT_EQ(answer.exit_code, 0) << answer.err;
    tuned += answer.json()["cache"] == "tuned";
  }
  EXPECT_EQ(tuned, 1);
  const json totals = stats();
  EXPECT_EQ(totals["candidates_compiled"], answers[0].json()["kernels"][0]["candidates"]);
  EXPECT_EQ(totals["misses"], 1);
  EXPECT_EQ(totals["joined"].get<int>() + totals["hits"].get<int>(), 49);
}

TEST_F(Cli, ANewClientGetsWhatARestartedServiceStored) {
  service();
  const std::string file = small_graph("swiglu.pt2");
  ASSERT_EQ(kiln({"compile", file, "--mode", "max-autotune"}).exit_code, 0);
  EXPECT_EQ(service().stop(), 0);
  service_.emplace(dir_.path() / "data");
  const Finished again = kiln({"compile", file, "--mode", "max-autotune", "--json"});
  EXPECT_EQ(again.json()["cache"], "hit") << again.out << service().log();
}

TEST_F(Cli, TheLocalTierAnswersWhenTheServiceIsAway) {
  service();
  const std::string file = small_graph("swiglu.pt2"), cache = (dir_.path() / "cache").string();
  ASSERT_EQ(kiln({"compile", file, "--mode", "max-autotune", "--cache-dir", cache}).exit_code, 0);
  service().stop();
  const Finished away = kiln({"run", file, "--expect", small_graph("swiglu.safetensors"), "--mode",
                              "max-autotune", "--cache-dir", cache, "--no-fallback", "--json"});
  EXPECT_EQ(away.exit_code, 0) << away.err;
  EXPECT_EQ(away.json()["cache"], "hit");
}

TEST_F(Cli, TheLocalTierKeepsNoMoreThanItMay) {
  const auto tier = dir_.path() / "cache";
  const std::vector<std::string> compile = {binary("kiln"), "compile", small_graph("softmax.pt2"),
                                            "--cache-dir", tier.string()};
  ASSERT_EQ(run(compile, {"KILN_CACHE_SIZE=1"}).exit_code, 0);
  ASSERT_TRUE(std::filesystem::exists(tier / "programs"));
  EXPECT_TRUE(std::filesystem::is_empty(tier / "programs"));
  ASSERT_EQ(run(compile, {"KILN_CACHE_SIZE=1GiB"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::is_empty(tier / "programs"));
  EXPECT_EQ(run(compile, {"KILN_CACHE_SIZE=much"}).exit_code, 2);
}

TEST_F(Cli, WithNoServiceTheFallbackCompilesHereAndNoFallbackExits3) {
  const std::string file = small_graph("softmax.pt2");
  const Finished here = kiln({"run", file, "--expect", small_graph("softmax.safetensors"),
                              "--coordinator", "tcp://127.0.0.1:9", "--json"});
  EXPECT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(here.json()["cache"], "local");
  EXPECT_NE(here.err.find("no coordinator answers at tcp://127.0.0.1:9 within 2000 ms; compiled "
                          "here, untuned"),
            std::string::npos)
      << here.err;
  const Finished untuned = kiln({"compile", file, "--mode", "max-autotune"});
  EXPECT_EQ(untuned.exit_code, 0) << untuned.err;
  EXPECT_NE(untuned.err.find("no service to tune it; compiled here, untuned"), std::string::npos)
      << untuned.err;
  EXPECT_EQ(
      kiln({"compile", file, "--coordinator", "tcp://127.0.0.1:9", "--no-fallback"}).exit_code, 3);
  EXPECT_EQ(kiln({"stats", "--coordinator", "tcp://127.0.0.1:9"}).exit_code, 3);
}

TEST_F(Cli, ExitCodesOfBadInput) {
  EXPECT_EQ(kiln({}).exit_code, 2);
  EXPECT_EQ(kiln({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(kiln({"--help"}).exit_code, 0);
  EXPECT_EQ(kiln({"compile", "/nonexistent.pt2"}).exit_code, 2);
  EXPECT_EQ(kiln({"digest", write("empty.pt2", "").string()}).exit_code, 2);
  EXPECT_EQ(kiln({"digest", write("text.pt2", "not a zip").string()}).exit_code, 2);
  EXPECT_EQ(kiln({"compile", small_graph("softmax.pt2"), "--mode", "fastest"}).exit_code, 2);
  EXPECT_EQ(kiln({"compile", small_graph("softmax.pt2"), "--target", "tpu"}).exit_code, 2);
  EXPECT_EQ(kiln({"up", "--listen", "tcp://0.0.0.0:0", "--data-dir", (dir_.path() / "d").string()})
                .exit_code,
            2);
}

// A signal ends compilers, their directories and the command, which says so.
TEST_F(Cli, AnInterruptedCompileLeavesNothing) {
  const Path scratch = dir_.path() / "scratch";
  std::filesystem::create_directory(scratch);
  for (const int signal : {SIGINT, SIGTERM}) {
    const Path said = dir_.path() / ("said" + std::to_string(signal));
    Child compile = Child::start({binary("kiln"), "compile", small_graph("bert.pt2")}, "/dev/null",
                                 said, {"TMPDIR=" + scratch.string()});
    const auto compiles = [&] {
      const std::filesystem::directory_iterator found(scratch);
      return std::ranges::any_of(found, [](const auto& entry) {
        return entry.path().filename().string().starts_with("kiln-compile");
      });
    };
    for (int i = 0; i < 3000 && !compiles(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(compiles());
    const std::vector<pid_t> compilers = descendants(compile.pid(), "cc1plus");
    compile.signal(signal);
    EXPECT_EQ(compile.wait(), 128 + signal);
    EXPECT_TRUE(std::filesystem::is_empty(scratch));
    for (const pid_t compiler : compilers) EXPECT_TRUE(ends(compiler));
    EXPECT_EQ(read_file(said).value(), "kiln: interrupted\n");
  }
}

// A disk that takes nothing is no reason to look for a service.
TEST_F(Cli, WhatADiskDoesNotTakeIsSaid) {
  const std::string file = small_graph("softmax.pt2");
  const Finished written = kiln({"explain", file, "--html", "/dev/full"});
  EXPECT_NE(written.exit_code, 0);
  EXPECT_EQ(written.err.find("kiln up"), std::string::npos) << written.err;
  const Finished folder = kiln({"compile", file, "--cache-dir", "/proc/none"});
  EXPECT_EQ(folder.exit_code, 2) << folder.err;
  const Finished taken = kiln({"compile", file, "--out", write("taken", "").string()});
  EXPECT_EQ(taken.exit_code, 2) << taken.err;
  EXPECT_NE(taken.err.find("is a file"), std::string::npos) << taken.err;
}

TEST_F(Cli, AWorkerWithoutItsKeyFileEndsAtOnce) {
  const Finished worker =
      run({binary("kiln-worker"), "--coordinator", "tcp://127.0.0.1:9", "--key", "/none.key"});
  EXPECT_EQ(worker.exit_code, 2) << worker.err;
  EXPECT_NE(worker.err.find("`kiln keys new` makes keys"), std::string::npos) << worker.err;
}

TEST_F(Cli, AnUncoveredOpExits6AndNamesOpAndLine) {
  const Finished refused =
      kiln({"compile", KILN_SOURCE_DIR "/tests/graphs/bad/uncovered_op.pt2", "--json"});
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_NE(refused.err.find("mylib.fancy_softmax"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("model.py"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.json()["error"]["code"], "unsupported");
}

TEST_F(Cli, AWrongAnswerExits1) {
  const Finished wrong =
      kiln({"run", small_graph("ffn_gelu.pt2"), "--inputs", small_graph("ffn_gelu.safetensors"),
            "--expect", small_graph("ffn_gelu.safetensors"), "--rtol", "0", "--atol", "0"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
  EXPECT_NE(wrong.out.find("out0 element"), std::string::npos) << wrong.out;
}

TEST_F(Cli, AProfileIsATimelineOfEveryLaunch) {
  const Path trace = dir_.path() / "trace.json";
  const Finished ran =
      kiln({"run", small_graph("layernorm.pt2"), "--profile", trace.string(), "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json launches = ran.json()["profile"]["launches"];
  ASSERT_FALSE(launches.empty());
  double sum_us = 0;
  for (const json& launch : launches) {
    EXPECT_GT(launch["bytes"], 0);
    EXPECT_GT(launch["floor_us"], 0);
    EXPECT_FALSE(launch["ops"].empty());
    sum_us += launch["us"].get<double>();
  }
  EXPECT_GT(sum_us, 0);

  size_t events = 0;
  double last_end_us = 0;
  const json timeline = json::parse(*read_file(trace));
  for (const json& event : timeline["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 1) continue;
    ++events;
    EXPECT_GE(event["ts"].get<double>() + 1e-6, last_end_us) << event;
    last_end_us = event["ts"].get<double>() + event["dur"].get<double>();
    EXPECT_FALSE(event["args"]["schedule"].get<std::string>().empty());
  }
  EXPECT_EQ(events % launches.size(), 0u);
  EXPECT_GT(events, launches.size()) << "several calls";

  const Finished shown = kiln({"run", small_graph("layernorm.pt2"), "--profile", trace.string()});
  EXPECT_NE(shown.out.find("% of the roofline"), std::string::npos) << shown.out;
  const Finished nowhere =
      kiln({"run", small_graph("layernorm.pt2"), "--profile", "/nonexistent/trace.json"});
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_NE(nowhere.err.find("/nonexistent/trace.json"), std::string::npos) << nowhere.err;
}

TEST_F(Cli, TensorsThatDoNotFitExit2AndAreNamed) {
  const Finished wrong =
      kiln({"run", small_graph("softmax.pt2"), "--inputs", small_graph("matmul.safetensors")});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("in0"), std::string::npos) << wrong.err;
}

TEST_F(Cli, DigestsArePrintedOneALineAndDoNotDependOnTheFile) {
  const Path copy = dir_.path() / "copy.pt2";
  std::filesystem::copy_file(small_graph("softmax.pt2"), copy);
  const Finished digests = kiln({"digest", small_graph("softmax.pt2"), copy.string()});
  EXPECT_EQ(digests.exit_code, 0);
  const size_t newline = digests.out.find('\n');
  EXPECT_EQ(digests.out.substr(0, 64), digests.out.substr(newline + 1, 64));
  EXPECT_EQ(digests.out.substr(64, 2), "  ");
}

TEST_F(Cli, TheTextFormCompilesToo) {
  GraphBuilder builder;
  const NodeId x = builder.input(DType::kF32, {8, 16});
  const auto graph = builder.finish({builder.unary(Op::kTanh, x)});
  const Finished ran = kiln({"run", write("tanh.kiln", print(*graph)).string(), "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.json()["compared"], false);
}

TEST_F(Cli, TheCoordinatorOfUpServesItsMetricsWhereItIsTold) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  service({"--http", address});
  EXPECT_TRUE(http_get(address, "/readyz").starts_with("HTTP/1.1 200"));
  EXPECT_NE(http_get(address, "/metrics").find("\nkiln_workers{state=\"serving\"} "),
            std::string::npos);
}

TEST_F(Cli, ASecondServiceOnOneDataDirectoryRefusesToStart) {
  service();
  const Finished second =
      kiln({"up", "--data-dir", (dir_.path() / "data").string(), "--listen", "tcp://127.0.0.1:0"});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_NE(second.err.find("data"), std::string::npos) << second.err;
}

}  // namespace
}  // namespace kiln::testing
