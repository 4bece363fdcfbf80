// A bundle is used only when it is whole and signed by whom we trust.
#include "client/bundle.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "client/loaded_bundles.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using SharedFiles = std::shared_ptr<const ProgramFiles>;

class BundleTest : public ::testing::Test {
 protected:
  static SharedFiles files(const Program& program, int blob, const SigningKey* key) {
    ProgramFiles made{program, {}, program_to_json(program), {}};
    made.artifacts.push_back(artifact_of(program.kernels[0], samples::blob(blob)));
    if (key != nullptr) made.signature = key->sign(signed_program(made.manifest));
    return std::make_shared<const ProgramFiles>(std::move(made));
  }
  SharedFiles sample(int n) const { return files(samples::program(n), n, &key_); }
  std::string bundle() const { return print_bundle(std::vector{sample(1), sample(2)}).value(); }
  Error refused(const std::string& text) const { return refused(text, key_.public_key()); }
  static Error refused(const std::string& text, std::string_view trusted) {
    const auto programs = parse_bundle(text, "model.kiln", trusted);
    EXPECT_FALSE(programs);
    return programs ? Error{} : programs.error();
  }
  // `body` with a good digest behind it, as one who alters a bundle would make it.
  static std::string sealed(const std::string& body) {
    return body + Digest::of(body).hex() + "\n";
  }
  std::string body() const {
    const std::string text = bundle();
    return text.substr(0, text.size() - 65);
  }

  const SigningKey key_ = SigningKey::generate();
};

TEST_F(BundleTest, GivesBackItsProgramsWithManifestsSignaturesAndBinaries) {
  const auto programs = parse_bundle(bundle(), "model.kiln", key_.public_key());
  ASSERT_TRUE(programs) << programs.error().message;
  ASSERT_EQ(programs->size(), 2u);
  for (int n : {1, 2}) {
    const ProgramFiles& got = *(*programs)[static_cast<size_t>(n - 1)];
    EXPECT_EQ(got.program, samples::program(n));
    EXPECT_EQ(got.manifest, sample(n)->manifest);
    EXPECT_EQ(got.signature, sample(n)->signature);
    ASSERT_EQ(got.artifacts.size(), 1u);
    EXPECT_EQ(got.artifacts[0].binary, samples::blob(n));
  }
}

TEST_F(BundleTest, ABinaryThatTwoProgramsHaveIsThereOnce) {
  Program other = samples::program(1);
  other.graph = samples::key("graph", 9);
  const std::string two = print_bundle(std::vector{sample(1), files(other, 1, &key_)}).value();
  const std::string one = print_bundle(std::vector{sample(1)}).value();
  EXPECT_LT(two.size() - one.size(), samples::blob(1).size());
  EXPECT_EQ(parse_bundle(two, "", key_.public_key())->size(), 2u);
  EXPECT_EQ(print_bundle(std::vector{sample(1), sample(1)}).value(), one) << "nor a program";
}

TEST_F(BundleTest, EveryFlippedBitIsFound) {
  const std::string good = bundle();
  for (size_t at = 0; at < good.size(); at += 41) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    EXPECT_FALSE(parse_bundle(bad, "model.kiln", key_.public_key())) << at;
  }
}

TEST_F(BundleTest, CutShortAnywhereItSaysSo) {
  const std::string good = bundle();
  for (size_t size = 20; size < good.size(); size += 97) {
    const Error error = refused(good.substr(0, size));
    EXPECT_EQ(error.code, Code::kCorruption) << size;
    EXPECT_NE(error.message.find("cut short"), std::string::npos) << error.message;
  }
  EXPECT_EQ(refused(good + "x").code, Code::kCorruption);
}

TEST_F(BundleTest, AnAlteredBinaryIsFoundThoughTheDigestAtTheEndIsGood) {
  std::string text = body();
  text.back() = static_cast<char>(text.back() ^ 1);
  const Error error = refused(sealed(text));
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find("was altered"), std::string::npos) << error.message;
}

TEST_F(BundleTest, AnAlteredManifestIsFoundThoughTheDigestAtTheEndIsGood) {
  std::string text = body();
  const size_t schedule = text.find("vector=2");
  ASSERT_NE(schedule, std::string::npos);
  text.replace(schedule, 8, "vector=4");
  EXPECT_EQ(refused(sealed(text)).code, Code::kCorruption);
}

TEST_F(BundleTest, ALackingBinaryIsNamed) {
  std::string text = body();
  const std::string blob = samples::blob(2);
  const std::string line =
      "blob " + std::to_string(blob.size()) + " " + Digest::of(blob).hex() + "\n";
  text.erase(text.find(line), line.size());
  text.erase(text.rfind(blob));
  const Error error = refused(sealed(text));
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find(Digest::of(blob).short_hex() + " is missing"), std::string::npos)
      << error.message;
}

TEST_F(BundleTest, OneOfAnotherSignerIsRefusedAndWithoutASignerItSaysHowToNameOne) {
  const Error other = refused(bundle(), SigningKey::generate().public_key());
  EXPECT_EQ(other.code, Code::kPermissionDenied);
  EXPECT_NE(other.message.find("is signed by"), std::string::npos) << other.message;
  EXPECT_NE(other.message.find("model.kiln"), std::string::npos) << other.message;
  const Error none = refused(bundle(), "");
  EXPECT_EQ(none.code, Code::kInvalidArgument);
  EXPECT_NE(none.message.find("--signer"), std::string::npos) << none.message;
}

TEST_F(BundleTest, AnUnsignedProgramIsNeitherBundledNorLoaded) {
  const auto none = print_bundle(std::vector{files(samples::program(1), 1, nullptr)});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  std::string text = body();
  const std::string signature = sample(2)->signature.to_string();
  text.erase(text.find(signature), signature.size());
  EXPECT_EQ(refused(sealed(text)).code, Code::kPermissionDenied);
}

TEST_F(BundleTest, ANewerFormatAndOtherFilesAreSaidToBeSo) {
  std::string newer = bundle();
  newer.replace(0, 13, "kiln-bundle 2");
  const Error error = refused(newer);
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_NE(error.message.find("newer Kiln"), std::string::npos) << error.message;
  for (const char* text : {"", "PK\x03\x04", "kiln-bundle", "kiln-bundle x\nend\n"}) {
    const Error other = refused(text);
    EXPECT_EQ(other.code, Code::kInvalidArgument) << text;
    EXPECT_NE(other.message.find("kiln bundle"), std::string::npos) << other.message;
  }
}

// Sizes that say more than there is, or more than there can be.
TEST_F(BundleTest, HostileSizesAreRefused) {
  for (const char* lines :
       {"program 9223372036854775807 x\n", "program -1 x\n", "program 1\n", "program  x\n",
        "blob 9223372036854775807 x\nblob 9223372036854775807 x\n", "other 1 x\n", "\n"})
    EXPECT_EQ(refused(sealed(std::string("kiln-bundle 1\n") + lines + "end\n")).code,
              Code::kCorruption)
        << lines;
  EXPECT_EQ(refused(sealed("kiln-bundle 1\nblob 0 zz\nend\n")).code, Code::kCorruption);
}

TEST_F(BundleTest, AListThatIsAllLinesIsRefusedBeforeItsLinesAreKept) {
  std::string text = "kiln-bundle 1\n";
  for (int i = 0; i <= 1 << 20; ++i) text += "blob 0 \n";
  const Error error = refused(sealed(text + "end\n"));
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find("too long"), std::string::npos) << error.message;
}

TEST_F(BundleTest, AFileThatNeverEndsOrIsTooLargeIsNotRead) {
  const TempDir dir = *TempDir::create();
  const Path pipe = dir.path() / "pipe", large = dir.path() / "large";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_TRUE(write_file(large, "kiln-bundle 1\n"));
  std::filesystem::resize_file(large, size_t{40} << 30);  // of which the disk has a block
  for (const Path& file : {pipe, large, Path("/dev/zero"), dir.path()}) {
    const auto read = read_bundle(file);
    ASSERT_FALSE(read) << file;
    EXPECT_EQ(read.error().code, Code::kInvalidArgument) << read.error().message;
  }
  EXPECT_EQ(read_bundle(dir.path() / "absent").error().code, Code::kNotFound);
}

TEST_F(BundleTest, FindsWhatThisMachineCanRunAndWasMadeForItFirst) {
  Program v3 = samples::program(1), own = v3, v4 = v3;
  own.target.device_model = "this machine";
  v4.target.isa = "x86-64-v4";
  const std::vector<SharedFiles> programs = {files(v3, 1, &key_), files(own, 1, &key_),
                                             files(v4, 1, &key_)};
  Target here{Backend::kCpu, "x86-64-v3", "this machine", 2, {}};
  EXPECT_EQ(find_in_bundle(programs, v3.graph, here, v3.mode), programs[1]);
  here.device_model = "another";
  EXPECT_EQ(find_in_bundle(programs, v3.graph, here, v3.mode), programs[0]);
  here.isa = "x86-64-v4";
  EXPECT_EQ(find_in_bundle(programs, v3.graph, here, v3.mode), programs[2]);
  EXPECT_EQ(find_in_bundle(programs, v3.graph, here, Mode::kDefault), nullptr);
  EXPECT_EQ(find_in_bundle(programs, samples::key("graph", 5), here, v3.mode), nullptr);
  here.backend = Backend::kCuda;
  EXPECT_EQ(find_in_bundle(programs, v3.graph, here, v3.mode), nullptr);
}

class LoadedBundlesTest : public BundleTest {
 protected:
  SharedFiles find(LoadedBundles& bundles) {
    const Program program = samples::program(1);
    return bundles.find_in_tier(program.graph, program.target, program.mode,
                                [this](const std::string& sentence) { said_ += sentence; });
  }

  TempDir tier_ = TempDir::create("kiln-tier").value();
  std::string said_;
};

TEST_F(LoadedBundlesTest, WhatWasPutBesideATierIsFoundByTheNextClient) {
  ASSERT_TRUE(LoadedBundles::install(tier_.path(), bundle(), key_.public_key()));
  LoadedBundles trusting(tier_.path(), ""), pinned(tier_.path(), key_.public_key());
  EXPECT_NE(find(trusting), nullptr) << said_;
  EXPECT_NE(find(pinned), nullptr) << said_;
  LoadedBundles other(tier_.path(), SigningKey::generate().public_key());
  EXPECT_EQ(find(other), nullptr);
  EXPECT_NE(said_.find("is signed by"), std::string::npos) << said_;
}

TEST_F(LoadedBundlesTest, WhatOthersMayWriteIsNotRead) {
  ASSERT_TRUE(LoadedBundles::install(tier_.path(), bundle(), key_.public_key()));
  std::filesystem::permissions(tier_.path() / "bundles", std::filesystem::perms::all);
  LoadedBundles bundles(tier_.path(), "");
  EXPECT_EQ(find(bundles), nullptr);
  EXPECT_FALSE(said_.empty());
}

TEST_F(LoadedBundlesTest, OneThatIsDamagedThereIsSaidAndPassedOver) {
  ASSERT_TRUE(LoadedBundles::install(tier_.path(), bundle(), key_.public_key()));
  for (const auto& file : std::filesystem::directory_iterator(tier_.path() / "bundles"))
    if (file.path().extension() == ".kiln") samples::flip_one_bit(file.path());
  LoadedBundles bundles(tier_.path(), "");
  EXPECT_EQ(find(bundles), nullptr);
  EXPECT_NE(said_.find("is damaged"), std::string::npos) << said_;
}

}  // namespace
}  // namespace kiln
