// An evil worker among honest ones, from seeds: it lies about results, bytes and times, of screenings
// and finals, in whatever role it is given, alone or with a second worker of its key. With `confirm
// 2` and one honest key no wrong program is served; where its key may only screen, none without it;
// where all have one key, samples find it. Mutations of the core show that the checks would notice.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "coordinator/core/mutation.h"
#include "tests/coordinator/core/core_bench.h"
#include "tests/simulation/random.h"

namespace kiln::simulation {
namespace {

constexpr int kPrograms = 1'000, kProgramsASeed = 20;
constexpr int kCandidates = 3;
constexpr int kSampleOneIn = 100;  // as coordinator/main.cc has it

struct Fleet {
  std::map<WorkerId, std::string> owners;  // evil ones belong to "mallory"
  static bool is_evil(const WorkerId& worker) { return worker.starts_with("evil"); }
};

// The truth about a kernel: which candidates are right, and how long each takes.
struct World {
  std::map<std::string, std::vector<std::pair<bool, double>>> kernels;  // by workload text
};

struct Served {
  int right = 0, refused = 0;
  std::string wrong;  // the first wrong thing that was served
  int tainted = 0;    // programs with an evil worker's kernel, until it was distrusted
  bool found = false;
};

struct Setting {
  int confirm = 2;
  int honest = 1;              // keys, or with one key workers
  bool two_of_mallory = true;  // two evil workers of one key
  bool screens_only = false;   // that key may only screen
  bool one_key = false;        // all workers have the same
  bool always_swaps = false;   // the bytes of whatever it builds
  bool builds = false;         // workers build and verify apart, and clients take what is built
};

class EvilWorld {
 public:
  EvilWorld(uint64_t seed, const Setting& setting)
      : random_(seed), setting_(setting), bench_(options(setting, seed)) {
    for (int i = 0; i < setting.honest; ++i)
      fleet_.owners["honest" + std::to_string(i)] =
          "owner" + std::to_string(setting.one_key ? 0 : i);
    fleet_.owners["evil0"] = setting.one_key ? "owner0" : "mallory";
    if (setting.two_of_mallory) fleet_.owners["evil1"] = "mallory";
  }

  Served run(int programs) {
    Served served;
    for (int i = 0; i < programs && served.wrong.empty() && !served.found; ++i) {
      const std::string name = std::to_string(i);
      const Mode mode = random_.chance(0.5) ? Mode::kDefault : Mode::kMaxAutotune;
      auto& truth = world_.kernels["workload " + name];
      for (int c = 0; c < kCandidates; ++c)
        truth.emplace_back(c == 0 || random_.chance(0.7), 5.0 + 10.0 * random_.fraction());
      for (const auto& [worker, owner] : fleet_.owners) report(worker);
      start(name, mode, static_cast<uint64_t>(i) + 1);
      settle(served, name);
    }
    return served;
  }

 private:
  // As CoreBench::start().
  void start(const std::string& name, Mode mode, uint64_t number) {
    CompileRequest request;
    request.request = number;
    request.graph = digest_of(name);
    request.target = cpu_target();
    request.mode = mode;
    request.early = setting_.builds && mode == Mode::kDefault;
    bench_.step(RequestReceived{"c", request});
    bench_.miss(bench_.key(name, mode));
    bench_.upload("c", request);
    bench_.plan({planned_kernel(name, kCandidates)}, mode, name);
  }

  static CoreOptions options(const Setting& setting, uint64_t seed) {
    CoreOptions options;
    options.confirm = setting.confirm;
    if (setting.one_key) options.sample_one_in = kSampleOneIn;
    options.sample_seed = seed;
    options.policy.finalists = 2;
    options.batch_size = 1;
    options.worker_grace_ms = 1'000;
    options.failure_memory_ms = options.transient_memory_ms = 1;
    return options;
  }

  void report(const WorkerId& worker, std::vector<CandidateResult> results = {}) {
    ReportReceived event{worker, bench_.report_of(worker, {}, std::move(results))};
    event.report.builds = setting_.builds;
    event.report.compilers = setting_.builds ? 2 : 0;
    event.owner = fleet_.owners.at(worker);
    event.standing.times_finals = !setting_.screens_only || !fleet_.is_evil(worker);
    bench_.step(std::move(event));
  }

  // Until the program is answered: whoever has orders works, in any order.
  void settle(Served& served, const std::string& name) {
    std::map<WorkerId, std::vector<Job>> jobs;
    for (int round = 0; round < 2'000; ++round) {
      bench_.store_all();
      for (SendOrders& orders : bench_.take<SendOrders>())
        for (Job& job : orders.orders.jobs) {
          if (job.kind == Job::Kind::kFinal && setting_.screens_only &&
              fleet_.is_evil(orders.worker))
            served.wrong = "a final of program " + name + " went to whoever may only screen";
          jobs[orders.worker].push_back(std::move(job));
        }
      for (const Distrust& liar : bench_.take<Distrust>()) {
        served.found |= setting_.one_key;
        if (!fleet_.is_evil(liar.worker)) served.wrong = liar.worker + " was distrusted";
      }
      if (served.found || !served.wrong.empty()) return;
      for (const WithdrawKernel& wrong : bench_.take<WithdrawKernel>())
        bench_.step(KernelWithdrawn{wrong.ticket, 1});
      for (const Answer& answer : bench_.take<Answer>()) return judge(answer, name, served);
      auto at = fleet_.owners.begin();
      std::advance(at, random_.between(0, std::ssize(fleet_.owners) - 1));
      std::vector<CandidateResult> results;
      for (const Job& job : std::exchange(jobs[at->first], {}))
        for (const CandidateJob& candidate : job.candidates)
          if (done_.emplace(job.lease, candidate.index).second)
            results.push_back(result_of(at->first, job, candidate));
      bench_.now_ms += 50;
      report(at->first, std::move(results));
      bench_.tick(50);
    }
    served.wrong = "program " + name + " was never answered";
  }

  CandidateResult result_of(const WorkerId& worker, const Job& job, const CandidateJob& candidate) {
    const auto& [right, us] =
        world_.kernels.at(job.workload_text)[static_cast<size_t>(candidate.index)];
    const bool is_honest = !fleet_.is_evil(worker) || (!setting_.one_key && random_.chance(0.3));
    if (!candidate.binary.empty() && job.kind == Job::Kind::kCompile) {  // given, to be verified
      CandidateResult verified = ok_result(job, candidate.index, us);
      verified.binary.clear();
      return right || !is_honest ? verified
                                 : bad_result(job, candidate.index, Verdict::kWrongResult);
    }
    if (is_honest && job.kind == Job::Kind::kBuild)
      return with_bytes(ok_result(job, candidate.index, us), job);
    if (is_honest)
      return right ? with_bytes(ok_result(job, candidate.index, us), job)
                   : bad_result(job, candidate.index, Verdict::kWrongResult);
    if (!setting_.always_swaps && random_.chance(0.2))
      return bad_result(job, candidate.index, Verdict::kWrongResult);
    const double lie_us = random_.chance(0.5) ? us / 100 : us * 100;
    CandidateResult lie = ok_result(job, candidate.index, lie_us);
    if (!setting_.always_swaps && random_.chance(0.5)) return with_bytes(std::move(lie), job);
    if (!lie.binary.empty()) lie.binary = "malware";
    return lie;
  }
  static CandidateResult with_bytes(CandidateResult result, const Job& job) {
    if (!result.binary.empty())
      result.binary = job.workload_text + " " + std::to_string(result.index);
    return result;
  }

  void judge(const Answer& answer, const std::string& name, Served& served) {
    if (!answer.reply.outcome) {
      ++served.refused;
      return;
    }
    const Program program = program_from_json(answer.reply.program_json).value();
    const ProgramKernel& kernel = program.kernels.front();
    const auto& truth = world_.kernels.at("workload " + name);
    for (int c = 0; c < kCandidates; ++c) {
      if (kernel.schedule != schedule_of(c).to_string()) continue;
      const bool right = truth[static_cast<size_t>(c)].first;
      const std::string bytes = "workload " + name + " " + std::to_string(c);
      if (setting_.one_key) {  // until it is found, what it makes is served
        served.tainted += fleet_.is_evil(kernel.provenance.built.worker);
        continue;
      }
      if (!right) served.wrong = "a wrong kernel in program " + name;
      if (kernel.blob != Digest::of(bytes)) served.wrong = "other bytes in program " + name;
      const bool is_bound = setting_.confirm >= 2 || fleet_.is_evil(kernel.provenance.built.worker);
      if (is_bound && keys_that_vouch(kernel.provenance) < 2)
        served.wrong = "one key's word in " + name;
    }
    ++served.right;
  }

  Random random_;
  const Setting setting_;
  CoreBench bench_;
  Fleet fleet_;
  World world_;
  std::set<std::pair<uint64_t, int>> done_;
};

Served serve(uint64_t seed, int programs, const Setting& setting = {},
             Mutation mutation = Mutation::kNone) {
  active_mutation = mutation;
  Served served = EvilWorld(seed, setting).run(programs);
  active_mutation = Mutation::kNone;
  return served;
}

TEST(EvilWorker, AgainstOneHonestKeyNothingWrongIsServedInAThousandPrograms) {
  int right = 0, refused = 0;
  for (uint64_t seed = 1; seed <= kPrograms / kProgramsASeed; ++seed) {
    Setting setting;
    setting.two_of_mallory = seed % 2 == 0;
    const Served served = serve(seed, kProgramsASeed, setting);
    ASSERT_EQ(served.wrong, "") << seed;
    right += served.right;
    refused += served.refused;
  }
  EXPECT_EQ(right + refused, kPrograms);
  EXPECT_GT(right, kPrograms / 20) << "when it does not lie, programs are served";
  EXPECT_GT(refused, 0) << "and it lied";
}

Setting building_apart() {
  Setting setting;
  setting.builds = true;
  return setting;
}

TEST(EvilWorker, WhereBuildingAndVerifyingAreApartItsBuildsAreNotAnsweredEither) {
  int right = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Served served = serve(seed, kProgramsASeed, building_apart());
    ASSERT_EQ(served.wrong, "") << seed;
    right += served.right;
  }
  EXPECT_GT(right, 20);
}

TEST(EvilWorker, ACoreThatAnswersABuildOnOneWordWouldBeNoticed) {
  bool found = false;
  for (uint64_t seed = 1; seed < 20 && !found; ++seed)
    found = !serve(seed, kProgramsASeed, building_apart(), Mutation::kEarlyOnOneWord).wrong.empty();
  EXPECT_TRUE(found);
}

// It is found out, loses its work, and from then on all is well.
TEST(EvilWorker, AgainstTwoHonestKeysItIsFoundAndEverythingIsServed) {
  Setting setting;
  setting.honest = 2;
  const Served served = serve(3, 60, setting);
  EXPECT_EQ(served.wrong, "");
  EXPECT_GT(served.right, 50);
}

TEST(EvilWorker, ACoreThatBelievesAnyBytesWouldBeNoticed) {
  bool found = false;
  for (uint64_t seed = 1; seed < 20 && !found; ++seed)
    found = !serve(seed, kProgramsASeed, {}, Mutation::kBelieveAnyBytes).wrong.empty();
  EXPECT_TRUE(found);
}

Setting screening_alone() {
  Setting setting;
  setting.confirm = 0;  // of others nothing is asked
  setting.screens_only = true;
  return setting;
}

TEST(EvilWorker, WithAKeyThatMayOnlyScreenItTimesNoFinalAndMakesNoWinnerAlone) {
  int right = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Served served = serve(seed, kProgramsASeed, screening_alone());
    ASSERT_EQ(served.wrong, "") << seed;
    right += served.right;
  }
  EXPECT_GT(right, 20) << "what the honest one built, or found the same";
}

TEST(EvilWorker, ACoreThatTrustsScreenersWouldBeNoticed) {
  bool found = false;
  for (uint64_t seed = 1; seed < 20 && !found; ++seed)
    found =
        !serve(seed, kProgramsASeed, screening_alone(), Mutation::kTrustScreeners).wrong.empty();
  EXPECT_TRUE(found);
}

Setting one_key(bool always_swaps) {
  Setting setting;
  setting.confirm = 1;
  setting.honest = 2;
  setting.one_key = true;
  setting.two_of_mallory = false;
  setting.always_swaps = always_swaps;
  return setting;
}

// No other key is there to confirm: one winner in a hundred is a sample, and the hundredth of one
// builder at the latest.
TEST(EvilWorker, SamplesFindWhoSwapsBytesWithinAHundredOfItsPrograms) {
  int most = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Served served = serve(seed, 10 * kSampleOneIn, one_key(true));
    ASSERT_EQ(served.wrong, "") << seed;
    ASSERT_TRUE(served.found) << seed << ": after " << served.tainted << " of its programs";
    EXPECT_LT(served.tainted, kSampleOneIn) << seed;
    most = std::max(most, served.tainted);
  }
  EXPECT_GT(most, 0) << "it was believed before";
}

// A sample may meet one of its honest answers; another one finds it.
TEST(EvilWorker, SamplesFindWhoLiesNowAndThen) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const Served served = serve(seed, 20 * kSampleOneIn, one_key(false));
    ASSERT_EQ(served.wrong, "") << seed;
    EXPECT_TRUE(served.found) << seed << ": after " << served.tainted << " of its programs";
  }
}

}  // namespace
}  // namespace kiln::simulation
