// ScheduleList: the schedules of a search space, packed: decision names once, values flat. A
// million candidates take a few dozen megabytes. Constant after construction; plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler_core/tune/schedule.h"

namespace kiln {

class ScheduleList {
 public:
  explicit ScheduleList(const std::vector<Schedule>& schedules);

  int size() const { return static_cast<int>(entries_.size()); }
  Schedule at(int index) const;
  const std::string& template_of(int index) const {
    return forms_[entries_[static_cast<size_t>(index)].form].template_name;
  }
  // The index of `schedule`, or -1. O(n).
  int find(const Schedule& schedule) const;
  // How far apart two are: the sum over their decisions of the ratio's logarithm to the base 2, at most
  // 1 each. Infinite between templates, and where one decision is 0 in one of them alone: those are ways
  // to do it, not sizes.
  double distance(int a, int b) const;

 private:
  struct Form {  // what schedules have in common
    std::string template_name;
    std::vector<std::string> names;
  };
  struct Entry {
    uint32_t form = 0;
    uint32_t first_value = 0;
  };
  bool has_form(const Schedule& schedule, const Form& form) const;
  uint32_t form_of(const Schedule& schedule);

  std::vector<Form> forms_;
  std::vector<Entry> entries_;
  std::vector<int64_t> values_;
};

}  // namespace kiln
