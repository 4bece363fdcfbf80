// Programs that are not what the coordinator signed are refused before anything of them is loaded.
#include "client/remote.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "client/client.h"
#include "client/local_tier.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "schema/zmq/transport.h"

namespace kiln {
namespace {

Graph doubled() {
  GraphBuilder builder;
  const NodeId x = builder.input(DType::kF32, {4});
  return *builder.finish({builder.binary(Op::kAdd, x, x)});
}

Program program_of(const CompileRequest& asked) {
  Program program;
  program.graph = asked.graph;
  program.target = asked.target;
  program.mode = asked.mode;
  program.template_stamp = Digest::of("stamp");
  program.key = program_key(program.graph, program.target, program.mode);
  return program;
}

class SignedProgram : public ::testing::Test {
 protected:
  SignedProgram() {
    asked.graph = Digest::of("graph");
    asked.target = {Backend::kCpu, "x86-64-v3", "", 0, ""};
    reply = answer_with(program_of(asked));
  }
  CompileReply answer_with(const Program& program) {
    CompileReply made;
    made.program_json = program_to_json(program);
    made.signature = key.sign(signed_program(made.program_json)).bytes;
    return made;
  }
  Result<Program> check() {
    return checked_program(asked, reply.program_json, {key.public_key(), reply.signature},
                           key.public_key());
  }

  const SigningKey key = SigningKey::generate();
  CompileRequest asked;
  CompileReply reply;
};

TEST_F(SignedProgram, OfTheTrustedSignerIsTaken) {
  const auto program = check();
  ASSERT_TRUE(program.has_value()) << program.error().message;
  EXPECT_EQ(program->graph, asked.graph);
}

TEST_F(SignedProgram, EveryFlippedBitOfManifestOrSignatureIsRefused) {
  const CompileReply good = reply;
  const auto refused = [&](std::string& bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const bool taken = check().has_value();
    reply = good;
    return !taken;
  };
  for (size_t bit = 0; bit < 8 * good.program_json.size(); ++bit)
    ASSERT_TRUE(refused(reply.program_json, bit)) << "bit " << bit << " of the manifest";
  for (size_t bit = 0; bit < 8 * good.signature.size(); ++bit)
    ASSERT_TRUE(refused(reply.signature, bit)) << "bit " << bit << " of the signature";
}

TEST_F(SignedProgram, UnsignedOrByAnotherItIsRefusedAndNamed) {
  const SigningKey other = SigningKey::generate();
  const auto by_other = checked_program(asked, reply.program_json,
                                        {key.public_key(), reply.signature}, other.public_key());
  ASSERT_FALSE(by_other.has_value());
  EXPECT_EQ(by_other.error().code, Code::kPermissionDenied);
  for (const std::string& name : {asked.graph.short_hex(), to_hex(key.public_key()).substr(0, 16),
                                  to_hex(other.public_key()).substr(0, 16)})
    EXPECT_NE(by_other.error().message.find(name), std::string::npos) << by_other.error().message;
  reply.signature.clear();
  EXPECT_EQ(check().error().code, Code::kPermissionDenied);
}

TEST_F(SignedProgram, AnotherSignedProgramIsNoAnswer) {
  const auto replay = [&](auto change) {
    CompileRequest other = asked;
    change(other);
    reply = answer_with(program_of(other));
    return check();
  };
  EXPECT_EQ(replay([](auto& r) { r.graph = Digest::of("other"); }).error().code, Code::kCorruption);
  EXPECT_FALSE(replay([](auto& r) { r.mode = Mode::kMaxAutotune; }));
  EXPECT_FALSE(replay([](auto& r) { r.target.isa = "x86-64-v4"; }));
  EXPECT_FALSE(replay([](auto& r) { r.target.backend = Backend::kCuda; }));
  Program renamed = program_of(asked);
  renamed.key = Digest::of("another key");
  reply = answer_with(renamed);
  EXPECT_FALSE(check());
  EXPECT_TRUE(replay([](auto& r) { r.target.device_model = "some CPU"; }))
      << "a coordinator fills in what was left open";
}

// A coordinator that answers every request with a program, as `tamper` leaves it.
class FakeCoordinator {
 public:
  FakeCoordinator(const SigningKey& key, std::function<void(CompileReply&)> tamper)
      : key_(key), tamper_(std::move(tamper)), listener_(*Listener::bind("tcp://127.0.0.1:0")) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeCoordinator() {
    stopping_ = true;
    listener_->wake();
    thread_.join();
  }
  const std::string& endpoint() const { return listener_->endpoint(); }
  int blobs_asked() const { return blobs_asked_; }

 private:
  void run() {
    while (!stopping_) {
      const auto received = listener_->receive(20);
      if (!received) continue;
      if (std::holds_alternative<Hello>(received->message)) {
        Welcome welcome;
        welcome.signing_key = key_.public_key();
        listener_->send(received->peer, welcome);
      } else if (const auto* asked = std::get_if<CompileRequest>(&received->message)) {
        CompileReply reply;
        reply.request = asked->request;
        reply.program_json = program_to_json(program_of(*asked));
        reply.signature = key_.sign(signed_program(reply.program_json)).bytes;
        tamper_(reply);
        listener_->send(received->peer, reply);
      } else if (std::holds_alternative<BlobRequest>(received->message)) {
        ++blobs_asked_;
      }
    }
  }
  const SigningKey& key_;
  const std::function<void(CompileReply&)> tamper_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> blobs_asked_{0};
  std::thread thread_;
};

Code refusal_of(const FakeCoordinator& coordinator, const std::string& signing_key = "") {
  ClientOptions options;
  options.coordinator = coordinator.endpoint();
  options.connect_timeout = std::chrono::minutes(1);
  options.signing_key = signing_key;
  auto client = Client::create(options);
  CompileOptions compile;
  compile.mode = Mode::kMaxAutotune;
  const auto program = (*client)->compile(doubled(), compile);
  EXPECT_FALSE(program.has_value());
  return program ? Code::kInternal : program.error().code;
}

TEST(SignedAnswers, ATamperedOneIsRefusedBeforeItsBinariesAreAskedFor) {
  const SigningKey key = SigningKey::generate();
  const FakeCoordinator altered(key, [](CompileReply& reply) { reply.program_json[20] ^= 1; });
  EXPECT_EQ(refusal_of(altered), Code::kCorruption);
  EXPECT_EQ(altered.blobs_asked(), 0);
  const FakeCoordinator unsigned_one(key, [](CompileReply& reply) { reply.signature.clear(); });
  EXPECT_EQ(refusal_of(unsigned_one), Code::kPermissionDenied);
}

TEST(SignedAnswers, ThoseOfACoordinatorThatIsNotTheOneInTheKeyFileAreRefused) {
  const SigningKey key = SigningKey::generate(), other = SigningKey::generate();
  const FakeCoordinator honest(key, [](CompileReply&) {});
  EXPECT_EQ(refusal_of(honest, to_hex(other.public_key())), Code::kPermissionDenied);
  ClientOptions bad;
  bad.signing_key = "no key";
  EXPECT_EQ(Client::create(bad).error().code, Code::kInvalidArgument);
}

// ---- The local tier ----

class SignedTier : public ::testing::Test {
 protected:
  SignedTier() {
    asked.graph = Digest::of("graph");
    asked.target = {Backend::kCpu, "x86-64-v3", "", 0, ""};
    files.program = program_of(asked);
    files.manifest = program_to_json(files.program);
    files.signature = key.sign(signed_program(files.manifest));
    reopen();
  }
  void reopen() { tier = *LocalTier::open(dir.path()); }
  Path file(const Digest& name, const char* ending) const {
    return dir.path() / "programs" / (name.hex() + ending);
  }
  Digest name() const { return files.program.key; }
  // What a fresh tier says after `text` stands in the file.
  Result<ProgramFiles> get_with(const char* ending, const std::string& text,
                                const std::string& signer) {
    EXPECT_TRUE(tier->put(name(), files).has_value());
    EXPECT_TRUE(write_file(file(name(), ending), text).has_value());
    return tier->get(name(), signer);
  }

  const TempDir dir = *TempDir::create();
  const SigningKey key = SigningKey::generate();
  CompileRequest asked;
  ProgramFiles files;
  std::unique_ptr<LocalTier> tier;
};

TEST_F(SignedTier, GivesBackWhatWasPutWithItsSignature) {
  ASSERT_TRUE(tier->put(name(), files).has_value());
  reopen();
  for (const std::string& signer : {std::string(), key.public_key()}) {
    const auto got = tier->get(name(), signer);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_EQ(got->manifest, files.manifest);
    EXPECT_EQ(got->signature, files.signature);
  }
}

TEST_F(SignedTier, WhatWasCompiledHereIsSignedByTheTier) {
  files.manifest.clear();
  files.signature = {};
  ASSERT_TRUE(tier->put(name(), files).has_value());
  EXPECT_TRUE(tier->get(name(), "").has_value());
  EXPECT_FALSE(tier->get(name(), key.public_key()).has_value()) << "that key did not sign it";
}

TEST_F(SignedTier, EveryFlippedBitOfManifestOrSignaturesIsRefusedAndRemoved) {
  ASSERT_TRUE(tier->put(name(), files).has_value());
  std::map<std::string, std::string> good;
  for (const char* ending : {".json", ".sig"}) good[ending] = *read_file(file(name(), ending));
  for (const auto& [flipped, bytes] : good) {
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      for (const auto& [ending, text] : good)
        ASSERT_TRUE(write_file(file(name(), ending.c_str()), text).has_value());
      std::string bad = bytes;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      ASSERT_TRUE(write_file(file(name(), flipped.c_str()), bad).has_value());
      ASSERT_FALSE(tier->get(name(), "").has_value()) << flipped << " bit " << bit;
      ASSERT_FALSE(std::filesystem::exists(file(name(), ".json")));
    }
  }
}

TEST_F(SignedTier, WhatAPowerFailureLeftShortIsAMissUntilItIsPutAgain) {
  for (const char* ending : {".json", ".sig"})
    for (const size_t part : {size_t{0}, size_t{2}}) {
      ASSERT_TRUE(tier->put(name(), files).has_value());
      const std::string whole = *read_file(file(name(), ending));
      const size_t left = part == 0 ? 0 : whole.size() / part;
      EXPECT_FALSE(get_with(ending, whole.substr(0, left), "").has_value()) << ending;
      ASSERT_TRUE(tier->put(name(), files).has_value());
      EXPECT_TRUE(tier->get(name(), key.public_key()).has_value());
    }
}

TEST_F(SignedTier, UnsignedItIsRefused) {
  EXPECT_EQ(get_with(".sig", "", "").error().code, Code::kPermissionDenied);
  EXPECT_EQ(get_with(".sig", "\n\n", "").error().code, Code::kPermissionDenied);
  ASSERT_TRUE(tier->put(name(), files).has_value());
  std::filesystem::remove(file(name(), ".sig"));
  EXPECT_EQ(tier->get(name(), "").error().code, Code::kPermissionDenied);
}

TEST_F(SignedTier, OfAnotherCoordinatorItIsRefusedWhenOneIsTrusted) {
  const SigningKey other = SigningKey::generate();
  ASSERT_TRUE(tier->put(name(), files).has_value());
  EXPECT_EQ(tier->get(name(), other.public_key()).error().code, Code::kPermissionDenied);
}

TEST_F(SignedTier, WithItsFirstLineTakenAwayItIsRefused) {
  ASSERT_TRUE(tier->put(name(), files).has_value());
  const std::string lines = *read_file(file(name(), ".sig"));
  EXPECT_EQ(get_with(".sig", lines.substr(lines.find('\n')), key.public_key()).error().code,
            Code::kCorruption);
}

TEST_F(SignedTier, UnderAnotherNameItIsRefused) {
  const Digest other = Digest::of("another program");
  ASSERT_TRUE(tier->put(name(), files).has_value());
  for (const char* ending : {".json", ".sig"})
    std::filesystem::copy_file(file(name(), ending), file(other, ending));
  EXPECT_EQ(tier->get(other, key.public_key()).error().code, Code::kCorruption);
}

}  // namespace
}  // namespace kiln
