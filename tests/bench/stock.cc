#include "tests/bench/stock.h"

#include "compiler_core/base/check.h"
#include "schema/codec.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln::bench {
namespace {

constexpr int kPrograms = 64;

Path keys_of(const Path& directory) {
  return directory / "data" / "keys";
}

}  // namespace

Stock fill(const std::string& endpoint) {
  Tally tally;
  FakeWorkerOptions options;
  options.binary_bytes = kBlobBytes;
  const FakeWorker worker(endpoint, tally, options);
  TestClient client(endpoint);
  Stock stock;
  for (int i = 0; i < kPrograms; ++i) {
    stock.graphs.push_back(test_graph(i + 3));
    const NormalForm& graph = stock.graphs.back();
    const CompileReply reply = client.compile(graph, client.request_for(graph, Mode::kDefault));
    CHECK(reply.outcome.has_value(), reply.outcome ? "" : reply.outcome.error().message);
    stock.manifests.push_back(reply.program_json);
    stock.blobs.push_back(program_from_json(reply.program_json)->kernels.at(0).blob);
  }
  return stock;
}

KilnQuestions look_ups(const Stock& stock, bool framed) {
  KilnQuestions questions;
  for (const NormalForm& graph : stock.graphs) {
    CompileRequest request;
    request.request = 1;
    request.graph = graph.digest;
    request.target = test_target();
    request.mode = Mode::kDefault;
    questions.frames.push_back(framed ? kiln_frame(request) : encode(request));
  }
  questions.check = [](const Message& answer) {
    const auto* reply = std::get_if<CompileReply>(&answer);
    return reply != nullptr && reply->outcome == CacheOutcome::kHit && !reply->program_json.empty();
  };
  return questions;
}

KilnQuestions blob_fetches(const Stock& stock) {
  KilnQuestions questions;
  for (const Digest& blob : stock.blobs)
    questions.frames.push_back(kiln_frame(BlobRequest{1, {blob}}));
  questions.check = [](const Message& answer) {
    const auto* reply = std::get_if<BlobReply>(&answer);
    return reply != nullptr && reply->chunks.size() == 1 &&
           reply->chunks[0].bytes.size() == kBlobBytes;
  };
  return questions;
}

StockedDirectory::StockedDirectory(const Path& made) : directory(made) {
  std::filesystem::create_directories(directory);
  Server unlocked = Server::kiln(directory);
  stock = fill(unlocked.endpoint());
  unlocked.kill();
  key.name = "load";
  key.pair = make_key_pair();
  key.server_key = ensure_server_keys(keys_of(directory)).value().public_key;
  CHECK(authorize(keys_of(directory), {Grant::kRead, key.name, key.pair.public_key}).has_value(),
        "a key is added");
}

Server StockedDirectory::start(bool keys) const {
  std::vector<std::string> more;
  if (keys) more = {"--keys", keys_of(directory).string()};
  return Server::kiln(directory, more);
}

}  // namespace kiln::bench
