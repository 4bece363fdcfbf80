// The tuning log: a store's records as rows that tables take (JSON lines, CSV, Parquet). Rows are
// flat, each column has one type, and columns are only ever added, at the end. Pure functions.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler_core/tune/measurement.h"

namespace kiln {

// Which records: those that fit everything that is said. A page is of so many that were read, not of
// so many that fit.
struct RecordQuery {
  int64_t after = 0;  // RecordList::last_id of the page before
  int64_t limit = 500;
  int64_t since_ms = 0;  // taken then or later, Unix time
  std::string worker{}, template_name{};
  std::optional<Digest> kernel{}, program{};  // its kernels
};

struct ListedRecord {
  TuningRecord record;
  std::optional<bool> won{};  // whether the kernel that is stored has its schedule; none is stored
};
struct RecordList {
  std::vector<ListedRecord> records;  // the oldest first
  int64_t last_id = 0;                // 0: there are no more
  int64_t damaged = 0;                // rows that were left out
};

// The records of `read` that fit, each beside whether it won. `kernels`: of the program that was asked for.
// `schedule_of`: of the kernel that is stored under a key; nullopt: none is.
std::vector<ListedRecord> fitting(
    const RecordQuery& wanted, std::vector<TuningRecord> read, std::span<const Digest> kernels,
    const std::function<std::optional<std::string>(const Digest&)>& schedule_of);

struct TuneLogColumn {
  std::string_view name, type, meaning;  // type: string, int64, double or bool
};
// In the order of a row's fields.
std::span<const TuneLogColumn> tune_log_columns();
// A field that is not known is null.
nlohmann::ordered_json tune_log_row(const ListedRecord& listed);

}  // namespace kiln
