// What `kiln compile --out` wrote is loaded only when it is signed by whom we trust, and whole.
#include "client/exported_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "compiler_core/compile/local.h"
#include "compiler_core/kernels/registry.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

class ExportedDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    Program program = samples::program(1);
    program.template_stamp = template_stamp(template_versions());
    write(program, key_);
  }
  void write(const Program& program, const SigningKey& key) {
    const std::string manifest = program_to_json(program);
    ASSERT_TRUE(write_file(dir_.path() / "manifest.json", manifest));
    ASSERT_TRUE(write_file(dir_.path() / "manifest.sig",
                           key.sign(signed_program(manifest)).to_string() + "\n"));
    ASSERT_TRUE(write_file(binary_, samples::blob(1)));
  }
  Error refused(std::string_view trusted) const {
    const auto files = read_exported(dir_.path(), trusted);
    EXPECT_FALSE(files);
    return files ? Error{} : files.error();
  }
  Error refused() const { return refused(key_.public_key()); }

  TempDir dir_ = TempDir::create("kiln-exported").value();
  const SigningKey key_ = SigningKey::generate();
  const Path binary_ = dir_.path() / (Digest::of(samples::blob(1)).hex() + ".so");
};

TEST_F(ExportedDirectory, OfTheTrustedSignerIsReadWithItsBinaries) {
  const auto files = read_exported(dir_.path(), key_.public_key());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->program.key, samples::program(1).key);
  ASSERT_EQ(files->artifacts.size(), 1u);
  EXPECT_EQ(files->artifacts[0].binary, samples::blob(1));
}

TEST_F(ExportedDirectory, AnUnsignedOneIsRefusedByName) {
  std::filesystem::remove(dir_.path() / "manifest.sig");
  const Error error = refused();
  EXPECT_EQ(error.code, Code::kPermissionDenied);
  EXPECT_NE(error.message.find("unsigned"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(dir_.path().string()), std::string::npos) << error.message;
}

TEST_F(ExportedDirectory, OneOfAnotherSignerIsRefused) {
  const Error error = refused(SigningKey::generate().public_key());
  EXPECT_EQ(error.code, Code::kPermissionDenied);
  EXPECT_NE(error.message.find("is signed by"), std::string::npos) << error.message;
}

TEST_F(ExportedDirectory, WithoutATrustedSignerItSaysHowToNameOne) {
  const Error error = refused("");
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_NE(error.message.find("--signer"), std::string::npos) << error.message;
}

TEST_F(ExportedDirectory, EveryFlippedBitOfTheSignatureOrManifestIsFound) {
  for (const char* name : {"manifest.json", "manifest.sig"}) {
    const std::string good = read_file(dir_.path() / name).value();
    for (size_t at = 0; at + 1 < good.size(); at += 7) {  // the last is the end of the line
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      ASSERT_TRUE(write_file(dir_.path() / name, bad));
      EXPECT_FALSE(read_exported(dir_.path(), key_.public_key())) << name << " " << at;
    }
    ASSERT_TRUE(write_file(dir_.path() / name, good));
  }
}

TEST_F(ExportedDirectory, AnAlteredOrMissingBinaryIsNamed) {
  samples::flip_one_bit(binary_);
  Error error = refused();
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find(binary_.string()), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("altered"), std::string::npos) << error.message;
  std::filesystem::remove(binary_);
  error = refused();
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find("missing"), std::string::npos) << error.message;
}

// It is signed, whole, and has what to run: which templates made it does not matter any more.
TEST_F(ExportedDirectory, WhatOtherTemplatesMadeIsRead) {
  Program program = samples::program(1);
  program.template_stamp = Digest::of("another");
  write(program, key_);
  const auto files = read_exported(dir_.path(), key_.public_key());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->program, program);
}

TEST_F(ExportedDirectory, FilesThatNeverEndOrAreTooLargeAreNotRead) {
  for (const Path& file : {dir_.path() / "manifest.json", dir_.path() / "manifest.sig", binary_}) {
    const std::string good = read_file(file).value();
    std::filesystem::resize_file(file, size_t{40} << 30);  // of which the disk has a few blocks
    EXPECT_EQ(refused().code, Code::kCorruption) << file;
    std::filesystem::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(refused().code, Code::kCorruption) << file;
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/zero", file);
    EXPECT_EQ(refused().code, Code::kCorruption) << file;
    std::filesystem::remove(file);
    ASSERT_TRUE(write_file(file, good));
  }
}

TEST_F(ExportedDirectory, ABindingIsOfItsProgramAndOfItsSigner) {
  const auto put = [&](const std::string& program, const SigningKey& key) {
    const std::string binding = R"({"input_order":[0],"program":")" + program + "\"}\n";
    const std::string digest = Digest::of(binding).hex();
    const Signature signature =
        key.sign(signed_artifact("kiln.binding", digest, "{\"binding\":\"" + digest + "\"}"));
    ASSERT_TRUE(write_file(dir_.path() / "binding.json", binding));
    ASSERT_TRUE(write_file(dir_.path() / "binding.sig", signature.to_string() + "\n"));
  };
  const std::string manifest = Digest::of(read_file(dir_.path() / "manifest.json").value()).hex();
  put(manifest, key_);
  EXPECT_TRUE(read_exported(dir_.path(), key_.public_key()));

  ASSERT_TRUE(write_file(dir_.path() / "binding.json",
                         R"({"input_order":[1],"program":")" + manifest + "\"}\n"));
  Error error = refused();
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find("binding.json"), std::string::npos) << error.message;

  put(Digest::of("another").hex(), key_);  // replayed
  error = refused();
  EXPECT_EQ(error.code, Code::kCorruption);
  EXPECT_NE(error.message.find("of another program"), std::string::npos) << error.message;

  put(manifest, SigningKey::generate());
  EXPECT_EQ(refused().code, Code::kPermissionDenied);
}

// Without the graph, the binding says which input is which.
TEST_F(ExportedDirectory, WithoutAGraphTheBindingCountsAndIsSigned) {
  const auto put = [&](const std::string& binding, const SigningKey& key) {
    ASSERT_TRUE(write_file(dir_.path() / "binding.json", binding));
    const std::string digest = Digest::of(binding).hex();
    const Signature signature =
        key.sign(signed_artifact("kiln.binding", digest, R"({"binding":")" + digest + "\"}"));
    ASSERT_TRUE(write_file(dir_.path() / "binding.sig", signature.to_string() + "\n"));
  };
  const std::string program = Digest::of(read_file(dir_.path() / "manifest.json").value()).hex();
  const std::string binding = R"({"input_order":[3],"program":")" + program + "\"}\n";
  const std::string signer(key_.public_key());
  ASSERT_TRUE(write_file(dir_.path() / "binding.json", binding));
  const auto unsigned_binding = read_bound(dir_.path(), signer);
  ASSERT_FALSE(unsigned_binding);
  EXPECT_EQ(unsigned_binding.error().code, Code::kPermissionDenied);
  EXPECT_NE(unsigned_binding.error().message.find("binding.json"), std::string::npos);

  put(binding, key_);
  const auto bound = read_bound(dir_.path(), signer);
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ(bound->input_order, std::vector<int>{3});
  EXPECT_EQ(bound->inputs, 4u);
  EXPECT_EQ(bound->files->artifacts.size(), 1u);
  put(binding, SigningKey::generate());
  EXPECT_EQ(read_bound(dir_.path(), signer).error().code, Code::kPermissionDenied);
  EXPECT_EQ(read_bound(dir_.path(), "").error().code, Code::kInvalidArgument);

  // Who vouches for the directory needs no signature; what is there is whole all the same.
  std::filesystem::remove(dir_.path() / "manifest.sig");
  EXPECT_TRUE(read_bound(dir_.path(), std::nullopt));
  for (const char* wrong :
       {"", "[", "[0]", "{}", R"({"input_order":[]})", R"({"input_order":[0,1]})",
        R"({"input_order":["0"]})", R"({"input_order":[-1]})", R"({"input_order":[4294967296]})",
        R"({"input_order":{"0":0}})"}) {
    ASSERT_TRUE(write_file(dir_.path() / "binding.json", wrong));
    EXPECT_EQ(read_bound(dir_.path(), std::nullopt).error().code, Code::kCorruption) << wrong;
  }
  ASSERT_TRUE(write_file(dir_.path() / "binding.json", binding));
  ASSERT_TRUE(write_file(binary_, "another"));
  EXPECT_EQ(read_bound(dir_.path(), std::nullopt).error().code, Code::kCorruption);
  EXPECT_EQ(read_bound(dir_.path() / "absent", std::nullopt).error().code, Code::kNotFound);
}

TEST_F(ExportedDirectory, ABindingOfBeforeHasNoSignature) {
  ASSERT_TRUE(write_file(dir_.path() / "binding.json", "{\"input_order\":[0]}\n"));
  EXPECT_TRUE(read_exported(dir_.path(), key_.public_key()));
}

TEST_F(ExportedDirectory, NoneAtAllSaysWhatWritesOne) {
  const auto files = read_exported(dir_.path() / "absent", key_.public_key());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, Code::kNotFound);
  EXPECT_NE(files.error().message.find("--out"), std::string::npos);
}

TEST_F(ExportedDirectory, ASignerIsHexOrAFileOfIt) {
  const std::string hex = to_hex(key_.public_key());
  EXPECT_EQ(read_signer(hex).value(), key_.public_key());
  ASSERT_TRUE(write_file(dir_.path() / "ed25519.pub", hex + "\n"));
  EXPECT_EQ(read_signer((dir_.path() / "ed25519.pub").string()).value(), key_.public_key());
  EXPECT_EQ(read_signer("nobody").error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
