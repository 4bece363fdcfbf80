// `kiln cache` as operators and scripts depend on it: on a store that nobody serves, and beside the
// coordinator that serves it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cache/sqlite.h"
#include "tests/cache/samples.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

class CacheCommand : public ::testing::Test {
 protected:
  CacheCommand() {
    auto cache = KernelCache::open(data()).value();
    for (int n : {1, 2, 3}) EXPECT_TRUE(samples::put_all(*cache, n));
    EXPECT_TRUE(samples::put_record(*cache, 1));
  }
  Path data() const { return dir_.path() / "data"; }
  Finished cache(std::vector<std::string> arguments, bool json_wanted = true) {
    arguments.insert(arguments.begin(), {binary("kiln"), "cache"});
    arguments.insert(arguments.end(), {"--data-dir", data().string()});
    if (json_wanted) arguments.push_back("--json");
    return run(arguments);
  }
  Finished through(const std::string& endpoint, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {binary("kiln"), "cache"});
    arguments.insert(arguments.end(), {"--coordinator", endpoint, "--json"});
    return ask(arguments);
  }
  std::string program(int n) const { return samples::key("program", n).hex(); }

  // A coordinator on the store; its endpoint.
  std::string serve(const std::vector<std::string>& more = {}) {
    const Path out = dir_.path() / "out";
    std::vector<std::string> command = {
        binary("kiln-coordinator"), "--data-dir", data().string(), "--listen",
        "tcp://127.0.0.1:0",        "--http",     "none"};
    command.insert(command.end(), more.begin(), more.end());
    coordinator_ = Child::start(command, out, dir_.path() / "err");
    for (int i = 0; i < 12'000; ++i) {
      const std::string text = read_file(out).value_or("");
      if (text.starts_with("ready ") && text.ends_with('\n'))
        return text.substr(6, text.size() - 7);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << read_file(dir_.path() / "err").value_or("");
    return "";
  }

  TempDir dir_ = TempDir::create("kiln-cache-cli").value();
  Child coordinator_ = Child::none();
};

TEST_F(CacheCommand, LsNamesWhatIsStored) {
  const Finished listed = cache({"ls", "--sort", "size"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const json report = listed.json();
  EXPECT_EQ(report["programs"], 3);
  EXPECT_EQ(report["kernels"], 3);
  EXPECT_EQ(report["records"], 1);
  ASSERT_EQ(report["entries"].size(), 6u);
  const json& largest = report["entries"][0];
  EXPECT_EQ(largest["kind"], "program");
  EXPECT_EQ(largest["key"], program(3)) << "its blob is the largest";
  EXPECT_EQ(largest["target"], "cpu:x86-64-v3");
  EXPECT_EQ(largest["mode"], "max-autotune");
  EXPECT_GT(largest["bytes"].get<int64_t>(), static_cast<int64_t>(samples::blob(3).size()));
  EXPECT_EQ(largest["pinned"], false);
  EXPECT_GT(largest["last_use_ms"].get<int64_t>(), 1'700'000'000'000);
  EXPECT_EQ(cache({"ls", "--limit", "2"}).json()["entries"].size(), 2u);
  const Finished text = cache({"ls"}, false);
  EXPECT_NE(text.out.find(program(2)), std::string::npos);
  EXPECT_NE(text.out.find("needed by 1"), std::string::npos);
}

TEST_F(CacheCommand, VerifySaysWhatIsBadAndRepairDropsIt) {
  EXPECT_EQ(cache({"verify"}).exit_code, 0);
  samples::flip_one_bit(samples::blob_path(data(), 2));
  const Finished found = cache({"verify"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.json()["bad"], 3);
  EXPECT_EQ(found.json()["findings"][0]["kind"], "blob");
  EXPECT_EQ(found.json()["findings"][0]["key"], Digest::of(samples::blob(2)).hex());
  const Finished repaired = cache({"verify", "--repair"});
  EXPECT_EQ(repaired.exit_code, 1) << "it was bad";
  EXPECT_EQ(repaired.json()["repaired"], true);
  const Finished sound = cache({"verify"});
  EXPECT_EQ(sound.exit_code, 0);
  EXPECT_EQ(sound.json()["programs"], 2);
}

TEST_F(CacheCommand, GcOfAStoppedStoreKeepsWhatIsPinned) {
  ASSERT_EQ(cache({"pin", program(2)}).exit_code, 0);
  EXPECT_EQ(cache({"ls", "--limit", "0"}).out.find("\"pinned\":true") == std::string::npos, false);
  const Finished collected = cache({"gc", "--max-size", "1KiB"});
  EXPECT_EQ(collected.exit_code, 1) << "what is pinned is larger";
  EXPECT_EQ(collected.json()["programs"], 2);
  EXPECT_EQ(collected.json()["reached"], false);
  EXPECT_TRUE(collected.json()["reason"].get<std::string>().ends_with("what is left is pinned"))
      << "nobody uses a stopped store, so a time has no part in it: " << collected.out;
  EXPECT_EQ(cache({"ls"}).json()["programs"], 1);
  EXPECT_EQ(cache({"unpin", program(2)}).exit_code, 0);
  const Finished rest = cache({"gc", "--max-size", "0"});
  EXPECT_EQ(rest.exit_code, 0) << rest.out << rest.err;
  EXPECT_EQ(rest.json()["stored_bytes"], 0);
  EXPECT_EQ(cache({"ls"}).json()["records"], 1) << "records outlive binaries";
}

TEST_F(CacheCommand, BesideACoordinatorReadingIsFreeAndChangesGoThroughIt) {
  const std::string endpoint = serve();
  EXPECT_EQ(cache({"ls"}).json()["programs"], 3);
  EXPECT_EQ(cache({"verify"}).exit_code, 0);
  const Finished refused = cache({"gc", "--max-size", "0"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--coordinator"), std::string::npos) << refused.err;

  const Finished pinned = through(endpoint, {"pin", program(1)});
  EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.json()["pinned"], true);
  EXPECT_EQ(through(endpoint, {"pin", program(9)}).exit_code, 2);
  // Everything was just put; a running service keeps what was used in the last ten minutes.
  const Finished kept = through(endpoint, {"gc", "--max-size", "0"});
  EXPECT_EQ(kept.exit_code, 1) << kept.out << kept.err;
  EXPECT_EQ(kept.json()["programs"], 0);
  EXPECT_EQ(cache({"ls"}).json()["programs"], 3);
  coordinator_.signal(SIGTERM);
  EXPECT_EQ(coordinator_.wait(), 0);
  EXPECT_EQ(cache({"gc", "--max-size", "0"}).json()["programs"], 2) << "the pin outlived it";
}

// The trail is the same while a coordinator serves the store and while nobody does.
TEST_F(CacheCommand, AuditSaysWhatWasAskedAndWhatCameOfIt) {
  const auto audit = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {binary("kiln"), "audit", "--data-dir", data().string()});
    return run(more);
  };
  const Finished none = audit({});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("nobody asked for anything"), std::string::npos) << none.err;
  ASSERT_EQ(cache({"pin", program(2)}).exit_code, 0);
  ASSERT_EQ(cache({"gc", "--max-size", "1KiB"}).exit_code, 1);
  const std::string endpoint = serve();
  ASSERT_EQ(through(endpoint, {"unpin", program(2)}).exit_code, 0);
  ASSERT_EQ(through(endpoint, {"pin", program(9)}).exit_code, 2);

  std::istringstream lines(audit({"--json"}).out);
  std::vector<json> acts;
  for (std::string line; std::getline(lines, line);) acts.push_back(json::parse(line));
  ASSERT_EQ(acts.size(), 4u);
  EXPECT_EQ(acts[0]["request"], "pin " + program(9).substr(0, 12));
  EXPECT_EQ(acts[0]["done"], false);
  EXPECT_EQ(acts[0]["coordinator"], endpoint);
  EXPECT_EQ(acts[1]["request"], "unpin " + program(2).substr(0, 12));
  EXPECT_EQ(acts[1]["done"], true);
  EXPECT_EQ(acts[2]["request"], "collect down to 1024 bytes");
  EXPECT_EQ(json::parse(acts[2]["outcome"].get<std::string>())["programs"], 2);
  EXPECT_EQ(acts[3]["request"], "pin " + program(2).substr(0, 12));
  EXPECT_EQ(acts[3]["coordinator"], "kiln cache");
  EXPECT_GT(acts[2]["number"], acts[3]["number"]);

  const std::string latest = audit({"--limit", "1"}).out;
  EXPECT_EQ(std::ranges::count(latest, '\n'), 1) << latest;
  EXPECT_NE(latest.find("  -             pin "), std::string::npos) << latest;
  EXPECT_NE(latest.find("not done: "), std::string::npos) << latest;
  EXPECT_EQ(audit({"--since", "2099-01-01T00:00:00"}).out, "");
  EXPECT_EQ(run({binary("kiln"), "audit", "--data-dir", dir_.path() / "none"}).exit_code, 2);
  EXPECT_EQ(run({binary("kiln"), "audit", "--store", "postgresql://127.0.0.1:1/x"}).exit_code, 3);
}

// On a shell that is set up as the README says.
TEST_F(CacheCommand, ADirectoryThatIsNamedIsMeantWhateverTheEnvironmentSays) {
  const std::string endpoint = serve();
  const Path scratch = dir_.path() / "scratch";
  EXPECT_TRUE(samples::put_all(*KernelCache::open(scratch).value(), 4));
  const std::vector<std::string> environment = {"KILN_COORDINATOR=" + endpoint};
  const Finished here = run(
      {binary("kiln"), "cache", "gc", "--max-size", "0", "--data-dir", scratch.string(), "--json"},
      environment);
  const Finished pinned = run({binary("kiln"), "cache", "pin", program(1), "--json"}, environment);
  const Finished both = cache({"gc", "--max-size", "0", "--coordinator", endpoint});
  EXPECT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(here.json()["programs"], 1);
  EXPECT_EQ(KernelCache::open(scratch).value()->totals().programs, 0);
  EXPECT_EQ(pinned.exit_code, 0) << "by the coordinator: " << pinned.err;
  EXPECT_EQ(both.exit_code, 2) << "which of the two?";
  EXPECT_EQ(cache({"ls"}).json()["programs"], 3);
}

// Without its rows every binary is an orphan.
TEST_F(CacheCommand, OfADamagedIndexNothingIsSwept) {
  const Path index = data() / "index.sqlite";
  ASSERT_TRUE(write_file(index, std::string(5000, 'x')));
  const std::vector<std::vector<std::string>> commands = {
      {"gc"}, {"gc", "--max-size", "1GiB"}, {"pin", program(1)}, {"unpin", program(1)}};
  for (const auto& command : commands) {
    const Finished refused = cache(command);
    EXPECT_EQ(refused.exit_code, 1) << command[0] << refused.out;
    EXPECT_NE(refused.err.find("damaged"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(read_file(index).value(), std::string(5000, 'x'));
  for (int n : {1, 2, 3}) EXPECT_TRUE(std::filesystem::exists(samples::blob_path(data(), n))) << n;
}

TEST_F(CacheCommand, AStoreOfAnotherVersionIsBadInput) {
  {
    auto db = Database::open(data() / "index.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("PRAGMA user_version = 99"));
  }
  for (const char* command : {"ls", "verify", "gc"}) {
    const Finished refused = cache({command});
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_NE(refused.err.find("newer Kiln"), std::string::npos) << refused.err;
  }
}

TEST_F(CacheCommand, WrongUseSaysWhatToDo) {
  const Finished key = cache({"pin", "0123"});
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_NE(key.err.find("64 hex digits"), std::string::npos) << key.err;
  const Finished nowhere =
      run({binary("kiln"), "cache", "ls", "--data-dir", (dir_.path() / "no").string()});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_NE(nowhere.err.find("--data-dir"), std::string::npos) << nowhere.err;
  EXPECT_EQ(run({binary("kiln"), "cache"}).exit_code, 2);
  EXPECT_EQ(cache({"ls", "--sort", "beauty"}).exit_code, 2);
  EXPECT_EQ(cache({"gc", "--max-size", "much"}).exit_code, 2);
  const Finished bound =
      run({binary("kiln-coordinator"), "--data-dir", data().string(), "--cache-size", "much"});
  EXPECT_EQ(bound.exit_code, 2);
}

// Online: a coordinator serves the store that is read.
TEST_F(CacheCommand, ExportAndImportBesideACoordinator) {
  const std::string place = dir_.path() / "export", copy = dir_.path() / "copy";
  const std::string endpoint = serve();
  ASSERT_FALSE(endpoint.empty());
  const Finished exported = cache({"export", place});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.json()["programs"], 3);
  EXPECT_EQ(exported.json()["records"], 1);
  EXPECT_EQ(exported.json()["written_blobs"], 3);
  EXPECT_EQ(exported.json()["read_back"], 3);
  EXPECT_EQ(cache({"export", place}).json()["written_blobs"], 0) << "they are there";

  const auto import = [&](const std::string& from, const std::string& into) {
    return run({binary("kiln"), "cache", "import", from, "--data-dir", into, "--json"});
  };
  const Finished restored = import(place, copy);
  ASSERT_EQ(restored.exit_code, 0) << restored.err;
  EXPECT_EQ(restored.json()["restored"], true);
  EXPECT_EQ(restored.json()["programs"], 3);
  EXPECT_EQ(restored.json()["bad"], 0);
  const Finished added = import(data(), copy);
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(added.json()["restored"], false);
  EXPECT_EQ(added.json()["programs"], 0);
  EXPECT_EQ(added.json()["present"], 6);
  const Finished served = import(place, data());
  EXPECT_EQ(served.exit_code, 2) << "a coordinator serves it";
  EXPECT_NE(served.err.find("stop it first"), std::string::npos) << served.err;
}

TEST_F(CacheCommand, WhatCannotBeImportedIsSaid) {
  const std::string place = dir_.path() / "export", copy = dir_.path() / "copy";
  const auto import = [&](const std::string& from, std::vector<std::string> environment = {}) {
    return run({binary("kiln"), "cache", "import", from, "--data-dir", copy, "--json"},
               environment);
  };
  EXPECT_EQ(import(place).exit_code, 2) << "nothing is there";
  EXPECT_EQ(import("gs://bucket/x").exit_code, 2);
  const Finished keyless =
      import("s3://bucket/x", {"AWS_ACCESS_KEY_ID=", "AWS_PROFILE=", "HOME=" + copy});
  EXPECT_EQ(keyless.exit_code, 2);
  EXPECT_NE(keyless.err.find("AWS_ACCESS_KEY_ID"), std::string::npos) << keyless.err;
  ASSERT_EQ(cache({"export", place}).exit_code, 0);
  samples::flip_one_bit(Path(place) / "blobs" / Digest::of(samples::blob(2)).hex().substr(0, 2) /
                        Digest::of(samples::blob(2)).hex());
  const Finished damaged = import(place);
  EXPECT_EQ(damaged.exit_code, 0) << damaged.err;
  EXPECT_EQ(damaged.json()["incomplete"], 2) << "left out, and said";
  EXPECT_EQ(damaged.json()["programs"], 2);
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) rows.push_back(json::parse(line));
  return rows;
}

TEST_F(CacheCommand, TheTuningLogIsTheSameFromADirectoryAndFromAService) {
  {
    auto store = KernelCache::open(data()).value();
    for (int n = 2; n < 1200; ++n) store->put_record(samples::record(n), nullptr);
    store->flush();
  }
  const auto log = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {binary("kiln"), "tune-log"});
    return run(more);
  };
  const Finished stopped = log({"--data-dir", data()});
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  const auto rows = lines_of(stopped.out);
  ASSERT_EQ(rows.size(), 1199u);
  EXPECT_EQ(rows[0]["schedule"], "cpu.pointwise vector=1");
  const Service service(data());
  const Finished served = log({"--coordinator", service.endpoint()});
  EXPECT_EQ(served.exit_code, 0) << served.err;
  EXPECT_EQ(served.out, stopped.out) << "pages do not show";
  EXPECT_EQ(log({"--data-dir", data()}).out, stopped.out) << "also while it is served";

  const auto count = [&](std::vector<std::string> filter) {
    filter.insert(filter.end(), {"--coordinator", service.endpoint()});
    return lines_of(log(filter).out).size();
  };
  EXPECT_EQ(count({"--kernel", samples::key("kernel", 0).hex()}), 1199u);
  EXPECT_EQ(count({"--program", program(1)}), 0u) << "of another kernel";
  EXPECT_EQ(count({"--template", "cpu.pointwise"}), 1199u);
  EXPECT_EQ(count({"--template", "cpu.matmul"}), 0u);
  EXPECT_EQ(count({"--worker", "worker-1", "--since", "2023-11-14"}), 1199u);
  EXPECT_EQ(count({"--since", "1h"}), 0u);

  const Finished csv = log({"--data-dir", data(), "--csv"});
  EXPECT_TRUE(csv.out.starts_with("taken_at,taken_at_ms,kernel_key,")) << csv.out.substr(0, 200);
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 1200);
  const Finished nothing = log({"--data-dir", data(), "--worker", "nobody"});
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_EQ(nothing.out, "");
  EXPECT_NE(nothing.err.find("no record fits"), std::string::npos) << nothing.err;
  EXPECT_EQ(log({"--data-dir", data(), "--kernel", "abc"}).exit_code, 2);
  EXPECT_EQ(log({"--data-dir", dir_.path() / "none"}).exit_code, 2);
  EXPECT_EQ(log({"--coordinator", "tcp://127.0.0.1:1"}).exit_code, 3);
  EXPECT_NE(log({"--columns"}).out.find("median_us"), std::string::npos);
}

}  // namespace
}  // namespace kiln::testing
