// MetricsText: the Prometheus text exposition format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). One thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "schema/metrics/histogram.h"

namespace kiln {

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // Begins a family; the samples that follow are its own. `type`: counter, gauge or histogram.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(double value, Labels labels = {});
  // Buckets, sum and count.
  void histogram(const Histogram& histogram, Labels labels = {});

  // A family with one sample.
  void counter(std::string_view name, std::string_view help, int64_t value);
  void gauge(std::string_view name, std::string_view help, double value);

  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, Labels labels, std::string_view le, double value);

  std::string text_, name_;
};

// Resources of this process, from /proc and the kernel, at the time of the call.
struct ProcessUse {
  double cpu_s = 0;
  double resident_bytes = 0;
  double open_fds = 0, max_fds = 0;
  double started_s = 0;  // since the epoch
};
ProcessUse process_use();
double resident_bytes();  // 0 when the system does not tell

// The families process_*, under the names that Prometheus' own client libraries use.
void process_families(MetricsText& out, const ProcessUse& use);

}  // namespace kiln
