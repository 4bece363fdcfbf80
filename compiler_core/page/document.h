// Document: what a page says, apart from how it looks: a view of the coordinator's, or a file that
// `kiln` writes. blocks.h writes it as HTML and the coordinator's frame.h as JSON, so that people and
// scripts read the same. Texts are raw: names in them may be hostile, and only html.h escapes. Plain
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kiln::page {

enum class Tone : uint8_t { kPlain, kGood, kWarning, kBad, kQuiet };

// A button: a POST to /act with these fields.
struct Act {
  std::string label{};
  std::vector<std::pair<std::string, std::string>> fields{};
  std::string question{};  // asked before, where there is script; empty: nothing
};

struct Bar {
  double share = 0;    // 0 to 1: how full it is
  std::string said{};  // for those who do not see it
  std::string link{};
};

// One fact. `text` is what people read, `data` what scripts do.
struct Value {
  std::string text{};
  std::variant<std::monostate, bool, int64_t, double, std::string> data{};
  std::string link{};  // a path of the page, or "#name-heading" in it; empty: none
  Tone tone = Tone::kPlain;
  bool is_code = false;     // keys, schedules
  std::vector<Bar> bars{};  // beside it
  std::string strip{};      // a letter for each span of time (plots.h); empty: none
  std::vector<Act> acts{};
};

struct Tile {
  std::string name{};   // for scripts
  std::string label{};  // for people
  Value value{};
  std::string note{};
};
struct Tiles {
  std::vector<Tile> tiles{};
};

struct Fact {
  std::string name{}, label{};
  Value value{};
};
struct Facts {
  std::string heading{};
  std::vector<Fact> facts{};
};

struct Column {
  std::string name{}, heading{};
  bool is_number = false;
};
// The part of a longer list that a table shows.
struct Paging {
  size_t first = 0, shown = 0, total = 0, limit = 0;
  std::string filter{};  // as it was asked for
  std::string hint{};    // what can be filtered for; empty: nothing
};
struct Table {
  std::string name{}, heading{};
  std::vector<Column> columns{};
  std::vector<std::vector<Value>> rows{};  // as many values as columns
  std::string empty{};                     // said where there are no rows
  std::string note{};
  std::optional<Paging> paging{};
  bool is_folded = false;  // people open it
};

// Values over time, one line each.
struct Series {
  std::string name{}, label{};
  std::vector<double> values{};  // NaN: not known
};
struct Chart {
  std::string name{}, heading{};
  std::vector<Series> series{};
  std::vector<int64_t> at_ms{};  // Unix time of each value
  std::string note{};
};

// Samples of several candidates on one scale of time.
struct Runner {
  std::string label{};
  std::vector<double> samples_us{};
  double median_us = 0;
  bool won = false;
};
struct Race {
  std::string name{}, heading{};
  std::vector<Runner> runners{};  // the fastest first
  std::string note{};
};

// Links of which one is where the reader is.
struct Choices {
  std::string heading{};
  struct Choice {
    std::string label{}, link{};
    bool is_current = false;
  };
  std::vector<Choice> choices{};
};

struct Code {
  std::string name{}, heading{}, text{};
  std::string note{};
  bool is_source = false;  // of C++ or CUDA: its words are told apart
  bool is_folded = false;
};
struct Notice {
  Tone tone = Tone::kPlain;
  std::string text{};
  std::string link{};  // of the whole notice
};

using Block = std::variant<Tiles, Facts, Table, Chart, Race, Choices, Code, Notice>;

struct Document {
  std::string view{};  // "overview", ...: the place in the navigation
  std::string title{};
  std::string about{};  // a sentence under the title
  std::vector<Block> blocks{};
  unsigned status = 200;
};

}  // namespace kiln::page
