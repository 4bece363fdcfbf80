// A coordinator played by hand that says of every graph that it is another one: the client says that
// this is a bug of Kiln's, keeps the graph, and compiles it here.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "client/client.h"
#include "client/service_request.h"
#include "compiler_core/base/file.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "tests/client/scripted_service.h"

namespace kiln {
namespace {

// Says of every graph that it is another one.
void refuse(Listener& listener, const Received& received) {
  if (const auto* request = std::get_if<CompileRequest>(&received.message))
    listener.send(received.peer,
                  testing::reply_to(*request, fail(Code::kInvalidArgument,
                                                   "the graph that was sent has digest abc")));
}

Graph tanh_graph() {
  GraphBuilder b;
  return *b.finish({b.unary(Op::kTanh, b.input(DType::kF32, {8}))});
}

TEST(RefusedGraph, IsKeptAndCompiledHere) {
  const testing::ScriptedService service(refuse);
  const auto folder = TempDir::create();
  ASSERT_TRUE(folder);
  ClientOptions options;
  options.coordinator = service.endpoint();
  options.connect_timeout = std::chrono::minutes(1);
  options.cache_dir = folder->path().string();
  const auto client = Client::create(options);
  ASSERT_TRUE(client) << client.error().message;
  std::vector<std::string> said;
  CompileOptions wanted;
  wanted.mode = Mode::kMaxAutotune;  // which this machine alone would not be asked for
  wanted.on_message = [&](const std::string& sentence) { said.push_back(sentence); };
  const auto program = (*client)->compile(tanh_graph(), wanted);
  ASSERT_TRUE(program) << program.error().message;
  const auto about_it = std::find_if(said.begin(), said.end(), [](const std::string& sentence) {
    return sentence.find("bug of Kiln's") != std::string::npos;
  });
  ASSERT_NE(about_it, said.end());

  std::string kept;
  for (const auto& file : std::filesystem::directory_iterator(folder->path()))
    if (file.path().extension() == ".graph") kept = file.path().string();
  ASSERT_FALSE(kept.empty());
  EXPECT_NE(about_it->find(kept), std::string::npos) << *about_it;
  const auto graph = parse_graph(read_file(kept).value());
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(normalise(*graph)->digest, normalise(tanh_graph())->digest);
}

TEST(RefusedGraph, IsAnErrorWhereNothingMayBeCompiledHere) {
  const testing::ScriptedService service(refuse);
  ClientOptions options;
  options.coordinator = service.endpoint();
  options.connect_timeout = std::chrono::minutes(1);
  options.allow_fallback = false;
  const auto client = Client::create(options);
  ASSERT_TRUE(client) << client.error().message;
  const auto program = (*client)->compile(tanh_graph(), {});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, Code::kInternal);
}

TEST(RefusedGraph, AnswersAboutOtherThingsBlameNobodysGraph) {
  EXPECT_TRUE(blames_our_graph({Code::kInvalidArgument, "", 0}, tanh_graph()));
  EXPECT_FALSE(blames_our_graph({Code::kUnsupported, "", 0}, tanh_graph()));
  EXPECT_FALSE(blames_our_graph({Code::kUnavailable, "", 0}, tanh_graph()));
}

}  // namespace
}  // namespace kiln
