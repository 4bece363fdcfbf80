// Drives a fuzz target without libFuzzer: its seeds, then mutations of them in an order that a seed
// decides, so that a failure is found again.
//   fuzz_X [--runs N] [--seed N]        a failing input is left in fuzz_X.crash
//   fuzz_X --write-corpus DIR           the seeds as files, for libFuzzer
//   fuzz_X FILE...                      these inputs, once each
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"
#include "tests/fuzz/fuzz_target.h"

// sanitizer/common_interface_defs.h; null in a build without one.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));  // NOLINT
// g++'s UBSan is a library of its own, which does not know the callback: it aborts.
extern "C" const char* __ubsan_default_options();   // NOLINT
extern "C" const char* __ubsan_default_options() {  // NOLINT
  return "abort_on_error=1:print_stacktrace=1";
}

namespace kiln::fuzz {
namespace {

// What breaks parsers: numbers at the edges, delimiters, escapes.
constexpr std::string_view kTokens[] = {"-1",
                                        "0",
                                        "1e999",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551615",
                                        "null",
                                        "\"\"",
                                        "{}",
                                        "[]",
                                        "[[[[",
                                        "\\ud800",
                                        "nan",
                                        "s0",
                                        "4294967296",
                                        "|",
                                        "=",
                                        ",",
                                        "\n"};

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& seeds) : random_(seed), seeds_(seeds) {}

  // Mutations of small seeds more often: they run faster, and what they break is easier to read.
  std::string next() {
    std::string text = seeds_[std::min(below(seeds_.size()), below(seeds_.size()))];
    for (size_t edits = 1 + below(6); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void edit(std::string& text) {
    const size_t at = below(text.size() + 1), length = std::min(below(40), text.size() - at);
    switch (below(9)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), 1 + below(60)));
        break;
      case 4:
        text.resize(at);
        break;
      case 5:
        text.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 6:
        text.replace(at, length, kTokens[below(std::size(kTokens))]);
        break;
      case 7: {  // of another seed, at the same place
        const std::string& other = seeds_[below(seeds_.size())];
        if (at < other.size()) text.replace(at, length, other.substr(at, 1 + below(60)));
        break;
      }
      default: {  // a word of binary formats: counts, sizes, offsets
        constexpr uint64_t kWords[] = {0,          1,          0x7f,       0xff, 0xffff,
                                       0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull};
        const uint64_t word = kWords[below(std::size(kWords))];
        const size_t bytes = size_t{1} << below(4), aligned = at / bytes * bytes;
        if (aligned + bytes <= text.size()) std::memcpy(text.data() + aligned, &word, bytes);
      }
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& seeds_;  // by size
};

const char* crash_file = nullptr;
const std::string* current = nullptr;

// Whatever ends the process, what did it is worth keeping. Only system calls: this runs in signal
// handlers, after the heap was broken.
void keep_input() {
  if (current == nullptr) return;
  const int fd = ::open(crash_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const char* at = current->data();
  for (size_t left = current->size(); left > 0;) {
    const ssize_t written = ::write(fd, at, left);
    if (written <= 0) break;
    at += written;
    left -= static_cast<size_t>(written);
  }
  ::close(fd);
}

// A CHECK aborts. Sanitizers report the other signals themselves, and end the process without any
// (_exit): they have a callback. Without them the handlers are ours, on a stack of their own, since
// what a parser does wrong may be to recurse without end.
void keep_what_kills() {
  static char stack[64 << 10];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  if (__sanitizer_set_death_callback != nullptr)
    __sanitizer_set_death_callback(keep_input);
  else
    ::sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK);
  action.sa_handler = [](int signal) {
    keep_input();
    ::raise(signal);  // once more, and for good
  };
  ::sigaction(SIGABRT, &action, nullptr);
  if (__sanitizer_set_death_callback != nullptr) return;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
    ::sigaction(signal, &action, nullptr);
}

void run_one(const std::string& input) {
  current = &input;
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  current = nullptr;
}

int drive(uint64_t seed, int runs) {
  std::vector<std::string> inputs = seeds();
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (const std::string& input : inputs) run_one(input);
  Mutator mutator(seed, inputs);
  for (int i = 0; i < runs; ++i) run_one(mutator.next());
  fmt::print("{} seeds, {} mutations of them, nothing found\n", inputs.size(), runs);
  return 0;
}

int run(int argc, char** argv) {
  static const std::string crash =
      std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1) + ".crash";
  crash_file = crash.c_str();
  keep_what_kills();
  uint64_t seed = 1;
  int runs = 1000;
  bool files = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--write-corpus" && has_value) {
      write_corpus(argv[i + 1]);
      return 0;
    }
    if (word == "--seed" && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--runs" && has_value) {
      runs = std::atoi(argv[++i]);
    } else {
      files = true;
      run_one(read_file(argv[i]).value());
    }
  }
  return files ? 0 : drive(seed, runs);
}

}  // namespace
}  // namespace kiln::fuzz

int main(int argc, char** argv) {
  return kiln::fuzz::run(argc, argv);
}
