// ops_peer ENDPOINT: a client that asks for more than people do, for tests of what is watched. It reads
// commands, a line each, and answers each with a line once it is done:
//   open N       sends N requests for one program, whose graph it uploads when it is first asked to
//   crowd N      sends N requests for a program whose graph it keeps to itself
//   tune N       has the Nth of many programs made, all of one size
//   ask N        asks N times for a program that is there, 64 at once, and waits for the answers
//   plan N SIZE  sends N graphs of some SIZE operations each, to be planned
//   texts N MIB  sends N texts of that many MiB each in the place of graphs
// Its requests stay open until its input ends.
#include <fmt/format.h>

#include <iostream>
#include <sstream>

#include "tests/compiler_core/plan/large_graphs.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln {
namespace {

class Peer {
 public:
  explicit Peer(const std::string& endpoint)
      : client_(endpoint), silent_(endpoint), asker_(endpoint) {}

  void open(int count) {
    const NormalForm graph = test_graph(7);
    for (int i = 0; i < count; ++i) send(client_, client_.request_for(graph));
    if (!is_uploaded_) upload(graph, print(graph.graph));
    is_uploaded_ = true;
    client_.stats();
  }

  // Nobody is told how a program without a graph gets on, so that few words come back.
  void crowd(int count) {
    const NormalForm graph = test_graph(8);
    constexpr int kAtOnce = 500;  // and then until the coordinator has read them
    for (int i = 1; i <= count; ++i) {
      send(silent_, silent_.request_for(graph));
      if (i % kAtOnce == 0 || i == count) silent_.stats();
    }
  }

  void tune(int which) {
    const NormalForm graph = test_graph(1000 + which);
    CHECK(asker_.compile(graph, asker_.request_for(graph, Mode::kDefault)).outcome.has_value(),
          "a program of one operation is made");
  }

  void ask(int count) {
    const NormalForm graph = test_graph(1);
    CHECK(asker_.compile(graph, asker_.request_for(graph, Mode::kDefault)).outcome.has_value(),
          "the program is there");
    constexpr int kWindow = 64;
    for (int sent = 0, answered = 0; answered < count; ++answered) {
      for (; sent < count && sent < answered + kWindow; ++sent)
        send(asker_, asker_.request_for(graph, Mode::kDefault));
      CHECK(asker_.connection->receive(kPatienceMs).has_value(), "a look-up is answered");
    }
  }

  void plan(int count, int size) {
    for (int i = 0; i < count; ++i) {
      const auto graph = normalise(testing::deep_chain(size + i));
      CHECK(graph.has_value(), "a chain has a normal form");
      send(client_, client_.request_for(*graph));
      upload(*graph, print(graph->graph));
    }
  }

  void texts(int count, int mebibytes) {
    const std::string text(static_cast<size_t>(mebibytes) << 20, '#');
    for (int i = 0; i < count; ++i) {
      const NormalForm graph = test_graph(100'000 + i);
      send(client_, client_.request_for(graph));
      upload(graph, text);
    }
  }

 private:
  static constexpr int kPatienceMs = 60'000;

  static void send(const TestClient& client, const CompileRequest& request) {
    CHECK(client.connection->send(request).has_value(), "the coordinator takes messages");
  }

  // Waits until the coordinator wants the graph, and sends `text`.
  void upload(const NormalForm& graph, const std::string& text) {
    for (;;) {
      const auto message = client_.connection->receive(kPatienceMs);
      CHECK(message.has_value(), "the coordinator asks for the graph");
      const auto* wanted = std::get_if<NeedGraph>(&*message);
      if (wanted == nullptr) continue;
      CompileRequest request = client_.request_for(graph);
      request.request = wanted->request;
      request.graph_text = text;
      return send(client_, request);
    }
  }

  TestClient client_, silent_, asker_;
  bool is_uploaded_ = false;  // open()'s graph
};

int run(const std::string& endpoint) {
  Peer peer(endpoint);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    int count = 0, size = 0;
    words >> what >> count >> size;
    if (what == "open")
      peer.open(count);
    else if (what == "crowd")
      peer.crowd(count);
    else if (what == "tune")
      peer.tune(count);
    else if (what == "ask")
      peer.ask(count);
    else if (what == "plan")
      peer.plan(count, size);
    else if (what == "texts")
      peer.texts(count, size);
    else
      return 2;
    std::cout << line << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return argc == 2 ? kiln::run(argv[1]) : 2;
}
