// The rows of the tuning log: a promise to tables that were made of them before.
#include "cache/tune_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/program/cubin_resources.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

bool is_of(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "bool") return value.is_boolean();
  if (type == "int64") return value.is_number_integer();
  return type == "double" && value.is_number_float();
}

// New ones go to the end.
TEST(TuneLog, ColumnsStayWhatTheyWere) {
  std::string names;
  for (const TuneLogColumn& column : tune_log_columns()) {
    names += std::string(column.name) + " ";
    EXPECT_FALSE(column.meaning.empty()) << column.name;
  }
  EXPECT_TRUE(names.starts_with(
      "taken_at taken_at_ms kernel_key workload target device_model units toolkit template "
      "template_version schedule verdict won samples median_us min_us p90_us spread_us sentinel_us "
      "worker owner binary seed log registers local_bytes shared_bytes "))
      << names;
}

TEST(TuneLog, ARowHasEveryColumnInItsOrderAndType) {
  TuningRecord full = samples::record(2);
  full.owner = "ci";
  full.log = "differs at 7";
  full.target.toolkit = "g++ 12";
  TuningRecord of_gpu = full;
  of_gpu.log = to_string(CubinResources{255, 16, 49'152});
  EXPECT_EQ(tune_log_row({of_gpu, true})["registers"], 255);
  for (const ListedRecord& listed :
       {ListedRecord{full, true}, ListedRecord{of_gpu, true}, ListedRecord{}}) {
    const Json row = tune_log_row(listed);
    ASSERT_EQ(row.size(), tune_log_columns().size());
    const bool is_of_gpu = listed.record.log == of_gpu.log;
    auto field = row.begin();
    for (const TuneLogColumn& column : tune_log_columns()) {
      EXPECT_EQ(field.key(), column.name);
      const bool is_resource = column.name == "registers" || column.name == "local_bytes" ||
                               column.name == "shared_bytes";
      const bool may_be_null =
          !listed.won || (column.name == "log" ? is_of_gpu : is_resource && !is_of_gpu);
      EXPECT_TRUE(is_of(*field, column.type) || (may_be_null && field->is_null()))
          << column.name << ": " << *field;
      ++field;
    }
  }
}

TEST(TuneLog, NumbersAreThoseOfTheSamples) {
  TuningRecord record = samples::record(2);
  record.taken_at_ms = 1'700'000'000'042;
  record.measurement.samples_us = {4, 1, 2, 3, 5};
  const Json row = tune_log_row({record, std::nullopt});
  EXPECT_EQ(row["taken_at"], "2023-11-14T22:13:20.042Z");
  EXPECT_EQ(row["samples"], 5);
  EXPECT_EQ(row["median_us"], 3.0);
  EXPECT_EQ(row["min_us"], 1.0);
  EXPECT_EQ(row["spread_us"], 2.0);
  EXPECT_NEAR(row["p90_us"].get<double>(), 4.6, 1e-9);
  EXPECT_EQ(row["seed"], std::to_string(record.seed)) << "64 bits";
  EXPECT_TRUE(row["won"].is_null());
}

}  // namespace
}  // namespace kiln
