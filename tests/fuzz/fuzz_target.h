// What a fuzz target is: the two functions below, in one file a parser. libFuzzer drives it when
// clang builds it (preset `fuzz`); seeded_driver.cc does with any compiler, so that the ordinary
// test run exercises every target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// One input, which may be anything. Returns 0; what is wrong ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace kiln::fuzz {

// Well-formed inputs to start from. `--write-corpus` writes them down for libFuzzer.
std::vector<std::string> seeds();

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The seeds as files.
void write_corpus(const std::string& directory);

// The files of tests/graphs/small that end like this, smaller than `max_bytes`.
std::vector<std::string> files_of(std::string_view ending, size_t max_bytes);

}  // namespace kiln::fuzz
