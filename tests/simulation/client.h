// Client: asks for programs, sends the graph when asked (sometimes garbage), repeats what is not
// answered, cancels, dies and comes back under another name.
#pragma once

#include <map>
#include <string>

#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
#include "tests/simulation/truth.h"

namespace kiln::simulation {

class Client {
 public:
  // `user`: who it says it is; may be empty. `asks_now`: some of its requests take tier 0.
  Client(std::string name, std::string user, bool asks_now, Network& network, Random& random,
         const Truth& truth)
      : name_(std::move(name)),
        user_(std::move(user)),
        asks_now_(asks_now),
        warms_up_(random.chance(0.3)),
        network_(network),
        random_(random),
        truth_(truth) {}

  void start();
  const ClientId& id() const { return id_; }
  bool idle() const { return open_.empty() && asked_ >= kRequests; }
  int64_t answers() const { return answers_; }
  void graph_wanted(uint64_t request);
  void answered(const CompileReply& reply);
  // Asks for the program of another request, under a number of its own.
  void ask_again(CompileRequest request);

 private:
  static constexpr int kRequests = 6;
  void live();
  void ask();
  void send(uint64_t request);
  void die();

  const std::string name_, user_;
  const bool asks_now_;
  const bool warms_up_;
  Network& network_;
  Random& random_;
  const Truth& truth_;
  ClientId id_;
  int incarnation_ = 0;
  uint64_t next_request_ = 1;
  int asked_ = 0;
  int64_t answers_ = 0;
  std::map<uint64_t, CompileRequest> open_;
};

}  // namespace kiln::simulation
