#include "tests/simulation/client.h"

namespace kiln::simulation {

void Client::start() {
  id_ = name_ + "." + std::to_string(++incarnation_);
  network_.after(random_.between(0, 1'000), [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) live();
  });
}

void Client::live() {
  if (network_.faults() && random_.chance(0.02)) return die();
  if (network_.faults() && !open_.empty() && random_.chance(0.02)) {
    const uint64_t request = open_.begin()->first;
    open_.erase(request);
    network_.to_coordinator(RequestCancelled{id_, request});
  }
  for (const auto& [number, request] : open_)
    if (random_.chance(0.3)) send(number);
  if (asked_ < kRequests && random_.chance(0.4)) ask();
  network_.after(random_.between(200, 1'500), [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) live();
  });
}

void Client::ask() {
  const auto& programs = truth_.programs();
  const auto chosen = random_.between(0, static_cast<int64_t>(programs.size()) - 1);
  const TrueProgram& program = programs[static_cast<size_t>(chosen)];
  ++asked_;
  CompileRequest request;
  request.request = next_request_++;
  request.graph = program.graph;
  request.target = program.target;
  request.mode = random_.chance(0.7) ? Mode::kMaxAutotune : Mode::kDefault;
  request.check_only = random_.chance(0.1);
  request.detach = random_.chance(0.15);
  request.strict = asked_ % 3 == 0;
  request.early = request.mode == Mode::kDefault && asked_ % 4 != 0;
  request.now = asks_now_ && asked_ % 2 == 0;
  if (request.now) request.early = asked_ % 4 != 0;
  if (warms_up_) request.priority = Priority::kWarmUp;
  if (random_.chance(0.1)) request.graph_text = program.graph_text;
  open_.emplace(request.request, request);
  send(request.request);
}

void Client::ask_again(CompileRequest request) {
  request.request = next_request_++;
  open_.emplace(request.request, request);
  send(request.request);
}

void Client::send(uint64_t request) {
  network_.to_coordinator(RequestReceived{id_, open_.at(request), user_});
}

void Client::graph_wanted(uint64_t request) {
  const auto open = open_.find(request);
  if (open == open_.end()) return;
  open->second.graph_text = network_.faults() && random_.chance(0.05)
                                ? "garbage"
                                : truth_.by_graph(open->second.graph).graph_text;
  send(request);
  open->second.graph_text.clear();
}

void Client::answered(const CompileReply& reply) {
  if (!reply.outcome && reply.outcome.error().code == Code::kOverloaded) return;  // asks again
  answers_ += static_cast<int64_t>(open_.erase(reply.request));
}

void Client::die() {
  open_.clear();
  network_.after(random_.between(10, 500),
                 [this, gone = id_] { network_.tell_coordinator(ClientGone{gone}); });
  start();
}

}  // namespace kiln::simulation
