// `kiln run --program DIR --signer KEY`: what a service compiled and signed is run where there is
// no service, and nothing else is.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/base/signature.h"
#include "tests/cache/samples.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

class ExportedRun : public ::testing::Test {
 protected:
  // Compiled by a service that is gone when the tests begin.
  static void SetUpTestSuite() {
    dir_ = new TempDir(*TempDir::create());
    Service service(dir_->path() / "data");
    compiled_ = run({binary("kiln"), "compile", small_graph("softmax.pt2"), "--mode", "default",
                     "--coordinator", service.endpoint(), "--no-fallback", "--out",
                     (dir_->path() / "signed").string()});
    stopped_ = service.stop();
  }
  static void TearDownTestSuite() { delete dir_; }
  void SetUp() override {
    ASSERT_EQ(compiled_.exit_code, 0) << compiled_.err;
    ASSERT_EQ(stopped_, 0);
    fs::copy(dir_->path() / "signed", program(), fs::copy_options::recursive);
  }

  // This test's own copy of what was exported.
  Path program() const { return copy_.path() / "program"; }
  Path the(const std::string& ending) const {
    for (const auto& file : fs::directory_iterator(program()))
      if (file.path().string().ends_with(ending)) return file.path();
    ADD_FAILURE() << "no " << ending;
    return {};
  }
  static std::string signer() { return (dir_->path() / "data/signing/ed25519.pub").string(); }

  // There is nobody to ask and no compiler to use. `graph`: what is to be computed.
  Finished run_it(const std::vector<std::string>& more,
                  const std::string& graph = "softmax") const {
    std::vector<std::string> arguments = {binary("kiln"),
                                          "run",
                                          small_graph(graph + ".pt2"),
                                          "--expect",
                                          small_graph(graph + ".safetensors"),
                                          "--program",
                                          program().string(),
                                          "--runs",
                                          "3",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {"KILN_CXX=/nonexistent/g++"});
  }
  // It was not run, this was the exit code, and these words say why.
  static void expect_refused(const Finished& ran, int exit_code,
                             const std::vector<std::string>& words) {
    EXPECT_EQ(ran.exit_code, exit_code) << ran.out << ran.err;
    EXPECT_FALSE(ran.json().contains("median_us")) << ran.out;
    for (const std::string& word : words)
      EXPECT_NE(ran.err.find(word), std::string::npos) << word << "\n" << ran.err;
  }

  inline static TempDir* dir_ = nullptr;
  inline static Finished compiled_;
  inline static int stopped_ = -1;
  const TempDir copy_ = *TempDir::create();
};

TEST_F(ExportedRun, TheSignersProgramGivesTheRightAnswer) {
  const std::string hex = read_file(signer()).value().substr(0, 64);
  for (const std::string& key : {signer(), hex}) {
    const Finished ran = run_it({"--signer", key});
    ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.json()["ok"], true);
    EXPECT_EQ(ran.json()["compared"], true);
    EXPECT_EQ(ran.json()["cache"], "hit");
  }
}

TEST_F(ExportedRun, AnotherSignersIsNotLoaded) {
  const std::string another = to_hex(SigningKey::generate().public_key());
  expect_refused(run_it({"--signer", another}), 2,
                 {"is signed by", another.substr(0, 16), program().string()});
}

TEST_F(ExportedRun, WithoutASignerNothingIsLoaded) {
  expect_refused(run_it({}), 2, {"--signer", program().string()});
  expect_refused(run_it({"--signer", "nobody"}), 2, {"64 hex digits"});
}

TEST_F(ExportedRun, AnUnsignedOneIsNotLoaded) {
  fs::remove(program() / "manifest.sig");
  expect_refused(run_it({"--signer", signer()}), 2, {"unsigned", program().string()});
}

TEST_F(ExportedRun, OneCompiledHereIsUnsignedWhateverLayThereBefore) {
  const Finished compiled = run({binary("kiln"), "compile", small_graph("softmax.pt2"), "--mode",
                                 "default", "--out", program().string()});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  expect_refused(run_it({"--signer", signer()}), 2, {"unsigned", program().string()});
}

TEST_F(ExportedRun, AnAlteredBinaryIsNotLoaded) {
  const Path blob = the(".so");
  samples::flip_one_bit(blob);
  expect_refused(run_it({"--signer", signer()}), 1, {"was altered", blob.string()});
  fs::remove(blob);
  expect_refused(run_it({"--signer", signer()}), 1, {"is missing", blob.string()});
}

TEST_F(ExportedRun, AnAlteredManifestIsNotLoaded) {
  samples::flip_one_bit(program() / "manifest.json");
  expect_refused(run_it({"--signer", signer()}), 1, {"altered", program().string()});
}

TEST_F(ExportedRun, TheCoordinatorSignedTheBindingOfThisProgramAndModel) {
  const std::string text = read_file(program() / "binding.json").value();
  const auto binding = nlohmann::json::parse(text);
  const std::string manifest = read_file(program() / "manifest.json").value();
  EXPECT_EQ(binding["program"], Digest::of(manifest).hex());
  EXPECT_EQ(binding["model"], Digest::of(read_file(small_graph("softmax.pt2")).value()).hex());
  EXPECT_EQ(binding["input_order"], nlohmann::json({0}));
  const std::string digest = Digest::of(text).hex();
  const Signature signature =
      Signature::parse(first_line(read_file(program() / "binding.sig").value())).value();
  EXPECT_TRUE(verify_signature(
      signed_artifact("kiln.binding", digest, "{\"binding\":\"" + digest + "\"}"), signature,
      parse_public_key(read_file(signer()).value().substr(0, 64)).value(), "it"));
}

TEST_F(ExportedRun, AnAlteredBindingIsNotLoaded) {
  ASSERT_TRUE(write_file(program() / "binding.json", "{\"input_order\":[1]}\n"));
  expect_refused(run_it({"--signer", signer()}), 1, {"altered", "binding.json"});
}

TEST_F(ExportedRun, AnotherGraphsProgramIsNotRun) {
  expect_refused(run_it({"--signer", signer()}, "layernorm"), 2, {"is of graph"});
}

TEST_F(ExportedRun, WhereThereIsNoneItSaysWhatWritesOne) {
  fs::remove_all(program());
  expect_refused(run_it({"--signer", signer()}), 2, {"kiln compile FILE --out DIR"});
}

}  // namespace
}  // namespace kiln::testing
