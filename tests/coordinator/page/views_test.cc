#include "coordinator/page/views.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/program/cubin_resources.h"
#include "coordinator/page/frame.h"
#include "coordinator/page/kernel_parts.h"

namespace kiln::page {
namespace {

using Json = nlohmann::json;

Json json_of(const Document& view) {
  return Json::parse(to_json(view));
}
std::string html_of(const Document& view) {
  return to_html(view, {.path = "/x"});
}
bool says(const Document& view, const std::string& text) {
  return html_of(view).find(text) != std::string::npos;
}

const Digest kProgram = Digest::of(std::string_view("program"));
const Digest kKernel = Digest::of(std::string_view("kernel"));

Snapshot busy() {
  Snapshot now;
  now.now_ms = 10'000'000;
  Stats& stats = now.status.stats;
  stats.hits = 900;
  stats.joined = 60;
  stats.misses = 40;
  stats.flights_open = 1;
  stats.workers.resize(2);
  for (WorkerStats& worker : stats.workers)
    worker.target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, {}};
  stats.workers[0].name = "gpu7";
  stats.workers[1].name = "gpu8";
  stats.workers[0].leases = 1;
  stats.workers[1].state = "quarantined";
  stats.workers[1].reason = "2 device faults";
  now.status.tasks.outcomes["tuned"] = 4;
  now.status.tasks.total.observe(20);
  now.status.tasks.total.observe(40);
  now.busy_gpu_s = 120;
  for (int i = 0; i < 61; ++i)
    now.seconds.push_back({.at_ms = now.now_ms - 60'000 + i * 1'000, .hits = i * 10});
  OpenProgram open{.key = kProgram,
                   .graph = {},
                   .target = stats.workers[0].target,
                   .mode = Mode::kMaxAutotune,
                   .stage = "tuning",
                   .age_s = 10,
                   .waiters = 3};
  open.kernels = {
      {.key = kKernel,
       .family = Family::kMatmul,
       .stage = "screening",
       .candidates = 40,
       .settled = 10,
       .best_us = 81},
      {.key = {}, .family = Family::kPointwise, .stage = "cached", .candidates = 5, .settled = 5}};
  now.open = {open};
  return now;
}

TEST(Overview, SaysWhatWasServedWhatItSavedAndWhatIsWrong) {
  const Json json = json_of(overview(busy()));
  EXPECT_EQ(json["hits"], 900);
  EXPECT_EQ(json["misses"], 40);
  EXPECT_EQ(json["device_busy_s"], 120.0);
  EXPECT_EQ(json["device_saved_s"], 120.0 / 4 * 960) << "hits and joins, at what one costs";
  EXPECT_EQ(json["waiting_saved_s"], 900 * 30.0) << "hits, at what others waited";
  EXPECT_TRUE(says(overview(busy()), "8.0 h of it of GPUs"));
  EXPECT_EQ(json["look_ups"]["hits"].size(), 60u);
  EXPECT_EQ(json["look_ups"]["hits"][0], 10.0) << "a second";
  EXPECT_EQ(json["open"].size(), 1u) << "what is running";
  EXPECT_EQ(json["notices"][0], "1 worker is in quarantine.");
  EXPECT_TRUE(says(overview(busy()), "href=\"/workers?filter=quarantined\""));
}

TEST(Overview, OfANewCoordinatorSaysWhatIsNotKnown) {
  const Json json = json_of(overview(Snapshot{}));
  EXPECT_EQ(json["device_saved_s"], nullptr);
  EXPECT_EQ(json["waiting_saved_s"], nullptr);
  EXPECT_EQ(json["notices"][0], "No worker serves: what is cached is answered, the rest is not.");
  Snapshot now = busy();
  now.status.stats.workers.pop_back();
  EXPECT_TRUE(says(overview(now), "Nothing is wrong."));
  EXPECT_TRUE(says(overview(now), "role=\"img\""));
}

TEST(Tuning, HasABarAKernelItsWaitersAndTheTimeLeft) {
  const Document view = tuning(busy(), {});
  const Json row = json_of(view)["open"][0];
  EXPECT_EQ(row["program"], kProgram.hex());
  EXPECT_EQ(row["waiters"], 3);
  EXPECT_EQ(row["kernels"], 2);
  EXPECT_EQ(row["left_s"], 30.0) << "10 of 40 took 10 s";
  EXPECT_TRUE(says(view, "matmul, screening: 10 of 40 candidates"));
  EXPECT_TRUE(says(view, "href=\"/kernel/" + kKernel.hex()));
  EXPECT_TRUE(says(view, "1 of 2"));
}

TEST(Tuning, FiltersAndSaysWhenNothingIsLikeThat) {
  EXPECT_EQ(json_of(tuning(busy(), Query::parse("filter=sm_90a")))["open"].size(), 1u);
  EXPECT_EQ(json_of(tuning(busy(), Query::parse("filter=x86")))["open"].size(), 0u);
  EXPECT_TRUE(says(tuning(Snapshot{}, {}), "Nothing is in flight."));
}

TEST(Tuning, QueuedProgramsHaveTheirReasonAndAButton) {
  Snapshot now;
  DetachedStats failed;
  failed.program = kProgram;
  failed.state = "failed";
  failed.reason = "no candidate compiled\nsource.cc:1: error";
  now.status.stats.detached = {failed};
  EXPECT_EQ(json_of(tuning(now, {}))["detached"][0]["reason"], "no candidate compiled")
      << "what the compiler said is not for everybody";
  now.sees_details = true;
  EXPECT_EQ(json_of(tuning(now, {}))["detached"][0]["reason"], failed.reason);
  const std::string html = to_html(tuning(now, {}), {.path = "/tuning", .may_act = true});
  EXPECT_NE(html.find("name=\"program\" value=\"" + kProgram.hex()), std::string::npos);
}

TEST(Workers, SayTheirStateTheirHourAndWhyTheyAreHeld) {
  Snapshot now = busy();
  now.strips["gpu7"] = "iibbb";
  const Json json = json_of(workers(now, {}))["workers"];
  EXPECT_EQ(json[0]["last_hour"], "iibbb");
  EXPECT_EQ(json[1]["state"], "quarantined");
  EXPECT_EQ(json[1]["reason"], "2 device faults");
  EXPECT_TRUE(says(workers(now, {}), "aria-label=\"busy 60 %, idle 40 %\""));
  EXPECT_EQ(json_of(workers(now, Query::parse("filter=quarantined")))["workers"].size(), 1u);
}

TEST(Misses, SayWhatCameOfEach) {
  Snapshot now;
  now.now_ms = 100'000;
  Miss miss{.program = kProgram, .graph = kKernel, .target = {}};
  miss.times = 3;
  miss.at_ms = 40'000;
  miss.outcome = "unavailable";
  miss.reason = "no worker for cuda:sm_80";
  miss.users = {"ci", "replica"};
  now.misses = {miss};
  const Json row = json_of(misses(now, {}))["misses"][0];
  EXPECT_EQ(row["times"], 3);
  EXPECT_EQ(row["outcome"], "unavailable");
  EXPECT_EQ(row["users"], "ci, replica");
  EXPECT_TRUE(says(misses(now, {}), "60 s ago"));
}

TuningRecord record_of(const std::string& schedule, int version, std::vector<double> samples_us,
                       Verdict verdict = Verdict::kOk) {
  TuningRecord record;
  record.kernel_key = kKernel;
  record.schedule = *Schedule::parse(schedule);
  record.template_version = version;
  record.measurement.samples_us = std::move(samples_us);
  record.verdict = verdict;
  record.worker = "gpu7";
  record.taken_at_ms = 1'000 * version;
  return record;
}

TEST(Kernel, ShowsEveryCandidateTheRaceAndTheHistory) {
  KernelFacts facts{kKernel};
  facts.stored = StoredKernel{};
  facts.stored->kernel.schedule = "cpu.matmul mr=4";
  facts.records = {
      record_of("cpu.matmul mr=4", 1, {9, 9, 9}), record_of("cpu.matmul mr=4", 2, {5, 5, 5}),
      record_of("cpu.matmul mr=4", 2, {4, 4, 4, 4, 4}), record_of("cpu.matmul mr=8", 2, {8, 8, 8}),
      record_of("cpu.matmul mr=6", 2, {}, Verdict::kWrongResult)};
  const Document view = kernel(Snapshot{}, facts, {});
  const Json json = json_of(view);
  ASSERT_EQ(json["candidates"].size(), 4u) << "one for each version of each";
  EXPECT_EQ(json["candidates"][0]["median_us"], 4.0) << "the longest series, the fastest first";
  EXPECT_EQ(json["candidates"][3]["verdict"], "wrong_result") << "those not timed come last";
  EXPECT_EQ(json["race"].size(), 3u);
  EXPECT_TRUE(json["race"][0]["won"]);
  ASSERT_EQ(json["history"].size(), 2u);
  EXPECT_EQ(json["history"][1]["best_us"], 4.0);
  EXPECT_EQ(json["history"][1]["good"], 3);
  EXPECT_TRUE(says(view, ">mr=8</text>")) << "a label says what differs";
  EXPECT_EQ(json_of(kernel(Snapshot{}, facts, Query::parse("filter=wrong")))["candidates"].size(),
            1u);
}

// A kernel that doubles 4096 numbers, and the record of a worker that compiled its winner.
KernelFacts doubling() {
  constexpr char kText[] =
      "kiln.graph 1\n%0 = input 0 : f32[4096]\n%1 = add %0 %0 : f32[4096]\nreturn %1\n";
  KernelFacts facts{kKernel};
  facts.stored.emplace();
  facts.stored->tuned_on = {Backend::kCpu, "x86-64-v3", "model", 2, {}};
  facts.stored->workload_text = kText;
  const Workload workload{parse_graph(kText).value(), Family::kPointwise, {}};
  const Schedule best = search_space(workload, facts.stored->tuned_on).value().front();
  ProgramKernel& kernel = facts.stored->kernel;
  kernel.family = "pointwise";
  kernel.schedule = best.to_string();
  kernel.recipe = lower_to_source(workload, best, facts.stored->tuned_on).value().recipe;
  kernel.templates = template_versions();
  facts.records = {
      record_of(kernel.schedule, find_version(kernel.templates, best.template_name), {3, 3, 3})};
  facts.records.front().binary = Digest::of(std::string_view("binary"));
  return facts;
}
Snapshot to_operators() {
  Snapshot now;
  now.sees_details = true;
  return now;
}
Query asks_for(const std::string& schedule) {
  Query query;
  query.set("source", schedule);
  return query;
}

TEST(KernelSource, IsPrintedAgainForTheWinnerAndForCandidatesThatWereCompiled) {
  KernelFacts facts = doubling();
  const std::string winner = facts.stored->kernel.schedule;
  const std::string source = json_of(kernel(to_operators(), facts, {}))["source"];
  EXPECT_NE(source.find("extern \"C\""), std::string::npos) << source;
  EXPECT_EQ(json_of(kernel(to_operators(), facts, asks_for(winner)))["source"], source);
  EXPECT_TRUE(says(kernel(to_operators(), facts, {}), "<span class=\"k\">"));
  EXPECT_EQ(json_of(kernel(to_operators(), facts, {}))["computes"], facts.stored->workload_text);

  const Workload workload{parse_graph(facts.stored->workload_text).value(), Family::kPointwise, {}};
  const Schedule other = search_space(workload, facts.stored->tuned_on).value().back();
  EXPECT_FALSE(
      json_of(kernel(to_operators(), facts, asks_for(other.to_string()))).contains("source"))
      << "nobody compiled it";
  facts.records.push_back(record_of(
      other.to_string(), find_version(template_versions(), other.template_name), {4, 4, 4}));
  facts.records.back().binary = Digest::of(std::string_view("another"));
  EXPECT_NE(json_of(kernel(to_operators(), facts, asks_for(other.to_string())))["source"], source);
}

TEST(KernelSource, IsNotShownWhereItWouldBeAnotherOrIsNobodysBusiness) {
  const auto said = [](const Snapshot& now, const KernelFacts& facts, const Query& query = {}) {
    const Json view = json_of(kernel(now, facts, query));
    EXPECT_FALSE(view.contains("source"));
    EXPECT_FALSE(view.contains("computes") && !now.sees_details);
    return view["notices"].dump();
  };
  EXPECT_NE(said(Snapshot{}, doubling()).find("for operators"), std::string::npos);
  KernelFacts facts = doubling();
  for (TemplateVersion& each : facts.stored->kernel.templates) ++each.version;
  EXPECT_NE(said(to_operators(), facts).find("this coordinator has version"), std::string::npos);
  facts = doubling();
  facts.stored->kernel.recipe.phases.emplace_back();
  EXPECT_NE(said(to_operators(), facts).find("launches it another way"), std::string::npos);
  facts = doubling();
  facts.stored->workload_text.clear();
  EXPECT_NE(said(to_operators(), facts).find("an older Kiln"), std::string::npos);
  facts.stored->workload_text = "kiln.graph 1\n%0 = nonsense";
  EXPECT_NE(said(to_operators(), facts).find("There is no source"), std::string::npos);
  facts = doubling();
  for (const char* hostile :
       {"<script>alert(1)</script>", "cpu.pointwise lanes=-1", "\xff", "a b="}) {
    EXPECT_NE(said(to_operators(), facts, asks_for(hostile)).find("No candidate"),
              std::string::npos);
    EXPECT_FALSE(says(kernel(to_operators(), facts, asks_for(hostile)), "<script>alert"));
  }
}

TEST(Kernel, OfAGpuShowsRegistersAndSpills) {
  KernelFacts facts = doubling();
  const auto columns = [&] { return html_of(kernel(Snapshot{}, facts, {})); };
  EXPECT_EQ(columns().find("Registers"), std::string::npos) << "a CPU's are not known";
  TuningRecord final_times = facts.records.front();
  final_times.measurement.samples_us = {3, 3, 3, 3, 3};
  final_times.binary = {};
  facts.records.front().log = to_string(CubinResources{168, 24, 49'152});
  facts.records.push_back(final_times);
  facts.records.push_back(record_of("cpu.pointwise lanes=64", 1, {}, Verdict::kCompileFailed));
  const Json view = json_of(kernel(Snapshot{}, facts, {}));
  EXPECT_EQ(view["registers"], 168) << "of the winner";
  EXPECT_EQ(view["candidates"][0]["registers"], 168) << "the compile's record says it";
  EXPECT_EQ(view["candidates"][0]["local_bytes"], 24);
  EXPECT_EQ(view["candidates"][0]["shared_bytes"], 49'152);
  EXPECT_TRUE(view["candidates"][1]["registers"].is_null());
  EXPECT_NE(columns().find("Registers"), std::string::npos);
}

TEST(Kernel, HasTheFastestOfEachSearch) {
  KernelFacts facts{kKernel};
  facts.records = {record_of("cpu.matmul mr=5", 1, {9, 9, 9}),
                   record_of("cpu.gemv", 4, {7, 7, 7}),
                   record_of("cpu.matmul mr=5", 2, {8, 8, 8}),
                   record_of("cpu.matmul mr=6", 2, {5}),
                   record_of("cpu.matmul mr=9", 2, {1}, Verdict::kWrongResult),
                   record_of("cpu.matmul mr=5", 3, {}, Verdict::kCompileFailed)};
  const Json searches = json_of(kernel(Snapshot{}, facts, {}))["winners"];
  ASSERT_EQ(searches.size(), 3u);
  EXPECT_EQ(searches[0]["schedule"], "cpu.gemv") << "what another template measured before stands";
  EXPECT_EQ(searches[0]["versions"], "cpu.gemv 4, cpu.matmul 3");
  EXPECT_EQ(searches[1]["schedule"], "cpu.matmul mr=6");
  EXPECT_EQ(searches[1]["measured"], 3);
  EXPECT_EQ(searches[2]["best_us"], 7.0);
  EXPECT_NEAR(searches[2]["share"].get<double>(), 5.0 / 7, 0.01);
}

TEST(Kernel, NobodyKnowsIsNotThere) {
  EXPECT_EQ(kernel(Snapshot{}, {kKernel}, {}).status, 404u);
  EXPECT_EQ(kernel(busy(), {kKernel}, {}).status, 200u) << "it is being tuned";
}

Program stored_program() {
  Program program;
  program.key = kProgram;
  program.graph = Digest::of(std::string_view("graph"));
  program.target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, {}};
  program.mode = Mode::kMaxAutotune;
  ProgramKernel kernel;
  kernel.key = kKernel;
  kernel.family = "pointwise";
  kernel.schedule = "cuda.pointwise";
  kernel.report.best_us = 20;
  TensorSpec megabytes{DType::kF32, {Dim(1024), Dim(4300)}};
  kernel.recipe = {{megabytes}, {megabytes}, {{"run", 4, 128}}, 0, 0};
  program.kernels = {kernel};
  program.buffers = {{Buffer::Kind::kInput, 0, megabytes, 0},
                     {Buffer::Kind::kOutput, 0, megabytes, 0}};
  program.launches = {{0, {0, 1}}, {0, {0, 1}}};
  program.output_buffers = {1};
  program.cuts = {{"by rules", 2, 40, true}, {"attention in three kernels", 4, 55, false}};
  return program;
}

TEST(ProgramView, HasKernelsLaunchesBytesAndTheirBound) {
  ProgramFacts facts{kProgram};
  facts.program = stored_program();
  facts.stored = ListedProgram{kProgram, "", 2'000, 5'000, true};
  const Document view = program(Snapshot{}, facts, {});
  const Json json = json_of(view);
  EXPECT_EQ(json["time_us"], 40.0) << "two launches";
  const Json row = json["kernels"][0];
  EXPECT_EQ(row["launches"], 2);
  EXPECT_EQ(row["bytes"], 2 * 1024 * 4300 * 4);
  EXPECT_NEAR(row["bound_us"].get<double>(), 8.192, 0.001) << "at 4300 GB/s";
  EXPECT_NEAR(row["share"].get<double>(), 0.41, 0.01);
  EXPECT_EQ(row["operations"], nullptr) << "nobody knows them";
  EXPECT_EQ(json["cuts"].size(), 2u);
  EXPECT_EQ(json["launches"].size(), 2u);
  const std::string html = to_html(view, {.path = "/", .may_act = true});
  EXPECT_NE(html.find(">Unpin</button>"), std::string::npos);
  EXPECT_NE(html.find(">Forget</button>"), std::string::npos);
}

TEST(ProgramView, NamesWhatItsKernelsFused) {
  ProgramFacts facts{kProgram};
  facts.program = stored_program();
  facts.stored = ListedProgram{kProgram, "", 2'000, 5'000, true};
  StoredKernel kernel;
  kernel.kernel.family = "pointwise";
  kernel.workload_text =
      "kiln.graph 1\n%0 = input 0 : f32[4]\n%1 = exp %0 : f32[4]\n%2 = add %1 %0 : f32[4]\n"
      "%3 = exp %2 : f32[4]\nreturn %3\n"
      "#from\taten.silu.default\t<b>.py:3 in f\tact\t%1 %2\n"
      "#from\taten.exp.default\tmodel.py:9 in f\t\t%3 %0\n";
  facts.workloads = {{kKernel, workload_facts(kernel)}};
  const Document view = program(Snapshot{}, facts, {});
  EXPECT_EQ(json_of(view)["kernels"][0]["operations"], "exp x2, add");
  EXPECT_EQ(json_of(view)["kernels"][0]["sources"], "<b>.py:3 in f, model.py:9 in f");
  EXPECT_NE(to_html(view, {.path = "/"}).find("&lt;b&gt;.py:3 in f"), std::string::npos);
  EXPECT_DOUBLE_EQ(json_of(view)["kernels"][0]["bound_us"].get<double>(), 4 * 2 * 4 / 4300e3)
      << "of what it computes";
  kernel.workload_text = "<script>";
  EXPECT_EQ(workload_facts(kernel).operations, "");
  EXPECT_EQ(workload_facts(StoredKernel{}).sources, "");
}

TEST(ProgramView, OfAMissNamesWhatThereIsOfItsGraph) {
  Snapshot now;
  Miss miss{.program = Digest::of(std::string_view("another mode")), .graph = {}, .target = {}};
  miss.outcome = "not_found";
  now.misses = {miss};
  ProgramFacts facts{miss.program};
  facts.relatives = {{kProgram, program_to_json(stored_program()), 1, 2, false}};
  const Document view = program(now, facts, {});
  EXPECT_EQ(view.status, 200u);
  EXPECT_TRUE(says(view, "It is not in the cache."));
  EXPECT_EQ(json_of(view)["relatives"][0]["program"], kProgram.hex());
  Program other = stored_program();
  other.key = Digest::of(std::string_view("nearer"));
  other.target = now.misses.front().target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, ""};
  now.misses.front().mode = Mode::kDefault;
  other.mode = Mode::kMaxAutotune;
  facts.relatives.push_back({other.key, program_to_json(other), 1, 2, false});
  Program far = other;
  far.key = Digest::of(std::string_view("far"));
  far.target.isa = "sm_80";
  far.target.units = 108;
  facts.relatives.insert(facts.relatives.begin(), {far.key, program_to_json(far), 1, 2, false});
  const Json nearest = json_of(program(now, facts, {}))["relatives"];
  EXPECT_EQ(nearest[2]["differs"],
            "target cuda:sm_80, not cuda:sm_90a; cores or SMs 108, not 132; "
            "mode max-autotune, not default")
      << nearest;
  now.misses.front().target = {Backend::kCuda, "sm_90a", "", 0, ""};
  EXPECT_EQ(json_of(program(now, facts, {}))["relatives"][2]["differs"],
            "target cuda:sm_80, not cuda:sm_90a; mode max-autotune, not default")
      << "any device was meant";
  EXPECT_EQ(nearest[0]["differs"].get<std::string>().find("target"), std::string::npos) << nearest;
  EXPECT_EQ(program(Snapshot{}, {kProgram}, {}).status, 404u);
}

TEST(CacheView, ListsProgramsAndAsksTheStoreForAPart) {
  ProgramList list;
  list.programs = {{kProgram, program_to_json(stored_program()), 1'500, 90'000, true}};
  list.total = 120;
  Snapshot now;
  now.now_ms = 100'000;
  now.totals = {.programs = 120, .kernels = 300, .stored_bytes = 50, .max_bytes = 100};
  const Query query = Query::parse("first=50&sort=age&filter=H200&pinned=1");
  const Json json = json_of(cache(now, list, query));
  EXPECT_EQ(json["programs"][0]["pinned"], true);
  EXPECT_EQ(json["programs"][0]["target"], "cuda:sm_90a, 132 SMs, NVIDIA H200");
  EXPECT_EQ(json["programs_paging"]["total"], 120);
  EXPECT_TRUE(says(cache(now, list, query), "51 to 51 of 120"));
  const ProgramQuery asked = program_query(query);
  EXPECT_EQ(asked.first, 50);
  EXPECT_EQ(asked.order, ProgramQuery::Order::kOldestUse);
  EXPECT_EQ(asked.text, "H200");
  EXPECT_TRUE(asked.pinned_only);
}

TEST(Audit, SaysWhoAskedForWhat) {
  Snapshot now;
  now.now_ms = 100'000;
  const std::vector<AdminAct> acts = {
      {2, 90'000, "tcp://a:7557", "ops", "drain gpu7", true, "draining"},
      {1, 10'000, "tcp://b:7557", "", "pin 0123", false, "no such program"}};
  now.acts_waiting = {{0, 95'000, "tcp://a:7557", "ops", "cancel 45", true, "{}"}};
  const Document view = audit(now, acts, {});
  const Json json = json_of(view)["acts"];
  EXPECT_EQ(json[0]["request"], "cancel 45") << "the store does not have it yet";
  EXPECT_EQ(json[1]["who"], "ops");
  EXPECT_EQ(json[1]["number"], 2);
  EXPECT_EQ(json[2]["done"], false);
  EXPECT_EQ(json[2]["coordinator"], "tcp://b:7557");
  EXPECT_TRUE(says(view, "this machine"));

  const Document away = audit(now, fail(kiln::Code::kUnavailable, "no route"), {});
  EXPECT_TRUE(says(away, "no route"));
  EXPECT_EQ(json_of(away)["acts"].size(), 1U) << "those that wait";
}

}  // namespace
}  // namespace kiln::page
