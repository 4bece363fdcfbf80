#include "tests/system/faults/library_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace kiln::testing {
namespace {

constexpr std::chrono::seconds kDeadline{20}, kGrace{5};

std::unique_ptr<Client> connect(ClientOptions options) {
  options.allow_fallback = false;
  options.threads = 1;
  return Client::create(std::move(options)).value();
}

bool is_right(const CompiledProgram& compiled, const SmallProgram& program) {
  const bool has_rows = program.out.size() == 2;
  const auto count = static_cast<int64_t>(program.x.size());
  const auto columns = has_rows ? static_cast<int64_t>(program.out[0].size()) : 1;
  Tensor x(DType::kF32,
           has_rows ? std::vector<int64_t>{count / columns, columns} : std::vector<int64_t>{count});
  std::ranges::copy(program.x, x.as<float>().begin());
  const Tensor* const inputs[] = {&x};
  const auto outputs = compiled.run(inputs);
  if (!outputs || outputs->size() != program.out.size()) return false;
  for (size_t i = 0; i < program.out.size(); ++i)
    if (!std::ranges::equal((*outputs)[i].as<float>(), program.out[i])) return false;
  return true;
}

bool is_expected(Code code) {
  return code == Code::kUnavailable || code == Code::kOverloaded || code == Code::kDeadlineExceeded;
}

}  // namespace

LibraryLoad::LibraryLoad(ClientOptions client, Path programs, int threads, int first_program,
                         int programs_each)
    : client_(std::move(client)), programs_(std::move(programs)), programs_each_(programs_each) {
  for (int n = 0; n < threads; ++n)
    threads_.emplace_back([this, first = first_program + n * programs_each] { ask_on(first); });
}

LibraryLoad::~LibraryLoad() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

std::string LibraryLoad::complaint() const {
  const std::lock_guard lock(mu_);
  return complaint_;
}

void LibraryLoad::complain(const std::string& what) {
  const std::lock_guard lock(mu_);
  if (complaint_.empty()) complaint_ = what;
}

void LibraryLoad::excuse() {
  if (era_ % 2 == 0) ++era_;
}

void LibraryLoad::demand() {
  if (era_ % 2 == 1) ++era_;
}

// `stored`: in which era a program was last answered as stored, as this thread knows.
void LibraryLoad::judge(const CompiledProgram& compiled, int program, int era_before,
                        std::map<int, int>& stored) {
  const bool hit = compiled.outcome() == Outcome::kHit;
  if (era_before % 2 == 1 || era_ != era_before) return;
  if (compiled.memory_only()) {
    ++tally_.lost;
    return complain(fmt::format("program {} is in memory only for no reason", program));
  }
  const auto promise = stored.find(program);
  if (promise != stored.end() && promise->second == era_before) {
    ++tally_.demanded;
    if (!hit) {
      ++tally_.lost;
      complain(fmt::format("program {} was answered as stored and is {} now", program,
                           to_string(compiled.outcome())));
    }
  }
  stored[program] = era_before;
}

void LibraryLoad::ask_on(int first_program) {
  std::mt19937_64 random(static_cast<uint64_t>(first_program));
  std::unique_ptr<Client> client;
  std::map<int, int> stored;
  for (int n = 0; !stop_; ++n) {
    // A client remembers what it had, so that every other ask comes from a new one.
    if (n % 2 == 0) client = connect(client_);
    const auto number = static_cast<int>(random() % static_cast<uint64_t>(programs_each_));
    const SmallProgram program = small_program(programs_, first_program + number);
    const auto start = std::chrono::steady_clock::now();
    const int era = era_;
    CompileOptions options;
    options.deadline = kDeadline;
    options.verify = true;  // only what is verified is stored
    const auto compiled = client->compile_file(program.graph, options);
    const auto took = std::chrono::steady_clock::now() - start;
    if (took > kDeadline + kGrace) {
      ++tally_.late;
      complain(fmt::format("program {} answered late", program.number));
    }
    if (!compiled) {
      const Error& error = compiled.error();
      ++(is_expected(error.code) ? tally_.errors : tally_.strange);
      if (!is_expected(error.code)) complain(error.message);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    ++tally_.answers;
    if ((*compiled)->outcome() == Outcome::kHit) ++tally_.hits;
    if (n % 2 == 0) judge(**compiled, program.number, era, stored);
    if (!is_right(**compiled, program)) {
      ++tally_.wrong;
      complain(fmt::format("program {} computes something else", program.number));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace kiln::testing
