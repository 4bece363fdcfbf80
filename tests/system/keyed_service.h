// A coordinator that takes keys, and the real programs that use it: a client's key (ci), an
// operator's (boss) and three of workers (honest, second, mallory). Each test has its own.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/coordinator/fake_fleet.h"
#include "tests/support/process.h"

namespace kiln::testing {

class KeyedService : public ::testing::Test {
 protected:
  KeyedService() {
    for (const auto& [name, role] :
         {std::pair{"ci", "submit"}, std::pair{"boss", "admin"}, std::pair{"honest", "worker"},
          std::pair{"second", "worker"}, std::pair{"mallory", "worker"}})
      add_key({name, "--role", role});
  }
  std::string at(const std::string& name) const { return (dir_.path() / name).string(); }
  // With `key`, of the service.
  Finished kiln(std::vector<std::string> arguments, const std::string& key = "") const {
    arguments.insert(arguments.begin(), binary("kiln"));
    if (!endpoint_.empty() && !key.empty())
      arguments.insert(arguments.end(), {"--coordinator", endpoint_, "--key", at(key + ".key")});
    return ask(arguments);
  }
  void serve(const std::string& confirm) {
    coordinator_ = Child::start(
        {binary("kiln-coordinator"), "--data-dir", at("data"), "--listen", "tcp://127.0.0.1:0",
         "--keys", at("data/keys"), "--http", "none", "--confirm", confirm},
        at("coordinator.out"), at("coordinator.err"));
    ASSERT_TRUE(eventually([this] {
      const std::string out = read_file(at("coordinator.out")).value_or("");
      if (!out.starts_with("ready ") || !out.ends_with('\n')) return false;
      endpoint_ = out.substr(6, out.size() - 7);
      return true;
    })) << log();
  }
  // A worker of the key of its name, or of `key`.
  Child worker(const std::string& name, const std::string& key = "",
               const std::vector<std::string>& environment = {}) const {
    return Child::start({binary("kiln-worker"), "--coordinator", endpoint_, "--key",
                         at((key.empty() ? name : key) + ".key"), "--cache-dir",
                         at("cache-" + name), "--name", name},
                        at(name + ".out"), at(name + ".err"), environment);
  }
  std::optional<WorkerStats> seen(const std::string& worker) const {
    ConnectOptions how;
    how.key = read_client_key(at("ci.key")).value();
    auto connection = Connection::open(endpoint_, Role::kClient, 5'000, how);
    if (!connection || !(*connection)->send(StatsRequest{1})) return std::nullopt;
    const auto message = (*connection)->receive(5'000);
    const auto* reply = message ? std::get_if<StatsReply>(&*message) : nullptr;
    if (reply == nullptr) return std::nullopt;
    for (const WorkerStats& each : reply->stats.workers)
      if (each.name == worker) return each;
    return std::nullopt;
  }
  WorkerStats comes(const std::string& worker) const {
    std::optional<WorkerStats> found;
    EXPECT_TRUE(eventually([&] { return (found = seen(worker)).has_value(); }, 60)) << log();
    return found.value_or(WorkerStats{});
  }
  std::string log() const { return read_file(at("coordinator.err")).value_or(""); }
  void add_key(std::vector<std::string> options) const {
    const std::string name = options.front();
    options.insert(options.begin(), {"keys", "new"});
    options.insert(options.end(), {"--data-dir", at("data"), "--out", at(name + ".key")});
    const Finished made = kiln(options);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }

  const TempDir dir_ = *TempDir::create("kiln-trust");
  std::string endpoint_;
  Child coordinator_ = Child::none();
};

}  // namespace kiln::testing
