// ClientAsk: one `kiln` process that asks a live service for one small program, and what came of
// it. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tests/system/faults/live_service.h"

namespace kiln::testing {

class ClientAsk {
 public:
  // How long a client may take by its own deadline, and how long we wait for it.
  static constexpr int kDeadlineS = 60, kPatienceS = 90;

  struct Key {
    int program;
    bool tuned;  // by a search
    auto operator<=>(const Key&) const = default;
  };
  // `kiln run`, compared with the right answer. `tier`: with the clients' own disk tier below the
  // service's root. `name`: of its output files; one at a time of a name.
  static ClientAsk run(const LiveService& service, std::string name, Key key, bool tier);
  // `kiln warm --detach`: ends once the program is queued.
  static ClientAsk queue(const LiveService& service, std::string name, Key key);

  const std::string& name() const { return name_; }
  const Key& key() const { return key_; }
  bool has_tier() const { return tier_; }
  bool is_queued() const { return queued_; }
  // True until it ended; `now_s` is kept as the time it took.
  bool running(double now_s);
  // Waits for it, at most kPatienceS; kills it then.
  void finish();
  void signal(int number) const { child_.signal(number); }

  // Once it ended.
  int exit_code() const { return child_.exit_code(); }
  double seconds() const { return seconds_; }
  nlohmann::json answer() const;  // what --json printed; empty when nothing
  std::string error() const;      // its stderr, on one line
  std::string told() const;       // all of it, for people

 private:
  ClientAsk(const LiveService& service, std::string name, Key key, bool tier, bool queued);
  void start(const LiveService& service, std::vector<std::string> arguments);

  std::string name_;
  Key key_;
  bool tier_, queued_;
  Path out_, err_;
  Child child_ = Child::none();
  double seconds_ = 0;
};

// Where the programs of a service's clients lie.
Path programs_of(const LiveService& service);
// The disk tier that its clients share.
Path tier_of(const LiveService& service);

}  // namespace kiln::testing
