// `kiln explain` and `kiln diff` as people call them, and what a change to one layer costs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/process.h"

namespace kiln::testing {
namespace {

Finished kiln(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), binary("kiln"));
  return ask(arguments);
}

TEST(Explain, PrintsKernelsGraphsAndSources) {
  const std::string file = small_graph("linear_ln_gelu") + ".pt2";
  const Finished text = kiln({"explain", file});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("layer_norm, gelu"), std::string::npos) << text.out;
  const auto json = kiln({"explain", file, "--json"}).json();
  ASSERT_EQ(json["kernels"].size(), 2u);
  EXPECT_GT(json["kernels"][0]["floor_us"].get<double>(), 0);
  const Finished graph = kiln({"explain", file, "--graph", "canonicalise"});
  EXPECT_TRUE(graph.out.starts_with("kiln.graph 1\n")) << graph.out;
  const Finished source = kiln({"explain", file, "--source", "0"});
  EXPECT_NE(source.out.find("extern \"C\""), std::string::npos) << source.out << source.err;
}

TEST(Explain, APageHasWhatTheServiceMeasured) {
  const TempDir dir = *TempDir::create();
  const Service service(dir.path() / "data");
  const std::string file = small_graph("softmax") + ".pt2", page = dir.path() / "page.html";
  const auto write = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"explain", file, "--mode", "max-autotune", "--html", page});
    const Finished done = kiln(more);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return *read_file(page);
  };
  const std::string offline = write({});
  EXPECT_NE(offline.find("nobody has timed its kernels yet"), std::string::npos) << offline;
  ASSERT_EQ(kiln({"compile", file, "--mode", "max-autotune", "--no-fallback", "--coordinator",
                  service.endpoint()})
                .exit_code,
            0);
  const std::string tuned = write({"--coordinator", service.endpoint()});
  EXPECT_NE(tuned.find("when each kernel was tuned"), std::string::npos) << tuned;
  EXPECT_NE(tuned.find("; the first guess took "), std::string::npos);
  EXPECT_EQ(kiln({"explain", file, "--html", dir.path() / "none" / "page.html"}).exit_code, 2);
}

TEST(Explain, RefusesWhatThereIsNot) {
  const std::string file = small_graph("softmax") + ".pt2";
  const Finished pass = kiln({"explain", file, "--graph", "polish"});
  EXPECT_EQ(pass.exit_code, 2);
  EXPECT_NE(pass.err.find("expand_half"), std::string::npos) << "names the passes: " << pass.err;
  EXPECT_EQ(kiln({"explain", file, "--source", "7"}).exit_code, 2);
  EXPECT_EQ(kiln({"explain", "/nowhere.pt2"}).exit_code, 2);
}

TEST(Explain, TheNearestProgramOfACacheSaysWhyItMissed) {
  const TempDir dir = *TempDir::create();
  const std::string file = small_graph("softmax") + ".pt2", cache = dir.path() / "cache";
  ASSERT_EQ(kiln({"compile", file, "--cache-dir", cache}).exit_code, 0);
  const auto hit = kiln({"explain", file, "--cache-dir", cache, "--why-miss", "--json"}).json();
  EXPECT_TRUE(hit["hit"].get<bool>()) << hit;
  const auto miss = kiln({"explain", file, "--cache-dir", cache, "--mode", "max-autotune",
                          "--why-miss", "--json"})
                        .json();
  EXPECT_FALSE(miss["hit"].get<bool>());
  for (const auto& component : miss["components"])
    EXPECT_EQ(component["differs"].get<bool>(), component["name"] == "mode") << component;
}

TEST(Explain, AServiceSaysWhatItHasOfAGraphAndNothingIsStarted) {
  const TempDir dir = *TempDir::create();
  const Service service(dir.path() / "data");
  const std::string file = small_graph("softmax") + ".pt2";
  const auto ask = [&](const std::string& mode) {
    return kiln({"explain", file, "--coordinator", service.endpoint(), "--mode", mode, "--why-miss",
                 "--json"})
        .json();
  };
  EXPECT_EQ(ask("default")["entries"], 0);
  ASSERT_EQ(kiln({"compile", file, "--coordinator", service.endpoint(), "--verify"}).exit_code, 0);
  EXPECT_TRUE(ask("default")["hit"].get<bool>());
  const auto miss = ask("max-autotune");
  EXPECT_FALSE(miss["hit"].get<bool>());
  EXPECT_EQ(miss["entries"], 1) << miss;
  for (const auto& component : miss["components"])
    EXPECT_EQ(component["differs"].get<bool>(), component["name"] == "mode") << component;
  EXPECT_EQ(miss["missing"].size(), 1u) << miss;
}

TEST(Explain, DiffSaysWhetherTwoFilesAreOneComputation) {
  const std::string softmax = small_graph("softmax") + ".pt2";
  const Finished same = kiln({"diff", softmax, softmax});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_NE(same.out.find("same computation"), std::string::npos);
  const Finished other = kiln({"diff", softmax, small_graph("softmax_dim0") + ".pt2", "--json"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_FALSE(other.json()["differences"].empty()) << other.out;
  EXPECT_EQ(kiln({"diff", softmax, "/nowhere.pt2"}).exit_code, 2);
}

// A product of matrices, and of each of its rows the `reduction`.
std::string two_layers(const std::string& reduction) {
  return "kiln.graph 1\n"
         "%0 = input 0 : f32[64,32]\n"
         "%1 = input 1 : f32[32,48]\n"
         "%2 = matmul %0 %1 : f32[64,48]\n"
         "%3 = " +
         reduction + " %2 axes=[1] : f32[64]\nreturn %3\n";
}

TEST(Explain, AChangeInOneLayerCostsThatLayersKernelsOnly) {
  const TempDir dir = *TempDir::create();
  Service service(dir.path() / "data");
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const auto compiled = [&service] {
    return kiln({"stats", "--coordinator", service.endpoint(), "--json"})
        .json()["candidates_compiled"]
        .get<int>();
  };
  const auto compile = [&](const std::string& name, const std::string& reduction) {
    const Path file = dir.path() / name;
    EXPECT_TRUE(write_file(file, two_layers(reduction)).has_value());
    const Finished done =
        kiln({"compile", file, "--coordinator", service.endpoint(), "--no-fallback", "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.err << service.log();
    return done.json()["kernels"].size();
  };
  EXPECT_EQ(compile("first.kiln", "reduce_sum"), 2u);
  const int before = compiled();
  EXPECT_EQ(before, 2);
  EXPECT_EQ(compile("second.kiln", "reduce_max"), 2u);
  EXPECT_EQ(compiled() - before, 1) << "the product is known";
}

}  // namespace
}  // namespace kiln::testing
