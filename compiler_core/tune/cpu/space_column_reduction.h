// The schedules of column reductions (a kept axis innermost). Values.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/reduction_passes.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct ColumnReductionSchedule {
  int lanes = 16;   // elements a vector, along the kept axis
  int vectors = 4;  // adjacent vectors taken together down the columns
  int unroll = 1;   // rows an iteration
  ReductionPasses::Keep keep = ReductionPasses::Keep::kNothing;
  // 0: a block goes down all rows of its columns, for all loops. More: rows are cut into so many
  // pieces, each streams through its rows into partial results, which another phase combines.
  int64_t split = 0;

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<ColumnReductionSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kColumnReduction, its sizes are constants.
std::vector<Schedule> column_reduction_space(const Workload& workload, const Target& target);

}  // namespace kiln
