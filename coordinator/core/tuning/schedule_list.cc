#include "coordinator/core/tuning/schedule_list.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln {

ScheduleList::ScheduleList(const std::vector<Schedule>& schedules) {
  entries_.reserve(schedules.size());
  for (const Schedule& schedule : schedules) {
    entries_.push_back({form_of(schedule), static_cast<uint32_t>(values_.size())});
    for (const Decision& decision : schedule.decisions) values_.push_back(decision.value);
  }
  values_.shrink_to_fit();
}

bool ScheduleList::has_form(const Schedule& schedule, const Form& form) const {
  return schedule.template_name == form.template_name &&
         std::equal(schedule.decisions.begin(), schedule.decisions.end(), form.names.begin(),
                    form.names.end(),
                    [](const Decision& d, const std::string& name) { return d.name == name; });
}

// Mostly that of the schedule before.
uint32_t ScheduleList::form_of(const Schedule& schedule) {
  for (size_t i = forms_.size(); i > 0; --i)
    if (has_form(schedule, forms_[i - 1])) return static_cast<uint32_t>(i - 1);
  Form form{schedule.template_name, {}};
  for (const Decision& decision : schedule.decisions) form.names.push_back(decision.name);
  forms_.push_back(std::move(form));
  return static_cast<uint32_t>(forms_.size() - 1);
}

Schedule ScheduleList::at(int index) const {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  const Form& form = forms_[entry.form];
  Schedule schedule{form.template_name, {}};
  schedule.decisions.reserve(form.names.size());
  for (size_t i = 0; i < form.names.size(); ++i)
    schedule.decisions.push_back({form.names[i], values_[entry.first_value + i]});
  return schedule;
}

int ScheduleList::find(const Schedule& schedule) const {
  for (int i = 0; i < size(); ++i) {
    const Entry& entry = entries_[static_cast<size_t>(i)];
    if (!has_form(schedule, forms_[entry.form])) continue;
    bool same = true;
    for (size_t d = 0; same && d < schedule.decisions.size(); ++d)
      same = values_[entry.first_value + d] == schedule.decisions[d].value;
    if (same) return i;
  }
  return -1;
}

double ScheduleList::distance(int a, int b) const {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Entry& one = entries_[static_cast<size_t>(a)];
  const Entry& other = entries_[static_cast<size_t>(b)];
  if (one.form != other.form) return kInfinite;
  double sum = 0;
  for (size_t d = 0; d < forms_[one.form].names.size(); ++d) {
    const auto x = static_cast<double>(values_[one.first_value + d]);
    const auto y = static_cast<double>(values_[other.first_value + d]);
    if (x == y) continue;
    if (x <= 0 || y <= 0) return kInfinite;
    sum += std::min(1.0, std::abs(std::log2(x / y)));
  }
  return sum;
}

}  // namespace kiln
