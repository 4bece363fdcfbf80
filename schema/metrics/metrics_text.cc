#include "schema/metrics/metrics_text.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace kiln {
namespace {

double count_entries(const char* directory) {
  DIR* const dir = opendir(directory);
  if (dir == nullptr) return 0;
  int entries = 0;
  while (readdir(dir) != nullptr) ++entries;
  closedir(dir);
  return std::max(0, entries - 3);  // ".", ".." and this reading's own
}

// Seconds since the epoch at which this program was loaded.
const auto kStarted = std::chrono::system_clock::now();

// Escapes the three characters that the format reserves: label values come from anybody.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::sample(double value, Labels labels) {
  line("", labels, "", value);
}

void MetricsText::histogram(const Histogram& histogram, Labels labels) {
  int64_t below = 0;
  for (size_t i = 0; i < histogram.upper_s().size(); ++i) {
    below += histogram.count_in(i);
    line("_bucket", labels, fmt::format("{}", histogram.upper_s()[i]), static_cast<double>(below));
  }
  const auto count = static_cast<double>(histogram.count());
  line("_bucket", labels, "+Inf", count);
  line("_sum", labels, "", histogram.sum_s());
  line("_count", labels, "", count);
}

void MetricsText::counter(std::string_view name, std::string_view help, int64_t value) {
  family(name, "counter", help);
  sample(static_cast<double>(value));
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  family(name, "gauge", help);
  sample(value);
}

void MetricsText::line(std::string_view suffix, Labels labels, std::string_view le, double value) {
  text_ += fmt::format("{}{}", name_, suffix);
  std::string inside;
  for (const auto& [name, label] : labels) {
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", name, escaped(label));
  }
  if (!le.empty()) inside += fmt::format("{}le=\"{}\"", inside.empty() ? "" : ",", le);
  if (!inside.empty()) text_ += fmt::format("{{{}}}", inside);
  text_ += fmt::format(" {}\n", value);
}

double resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long total = 0, resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

ProcessUse process_use() {
  ProcessUse use;
  rusage spent{};
  getrusage(RUSAGE_SELF, &spent);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  use.cpu_s = seconds(spent.ru_utime) + seconds(spent.ru_stime);
  use.resident_bytes = resident_bytes();
  use.open_fds = count_entries("/proc/self/fd");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  use.max_fds = static_cast<double>(limit.rlim_cur);
  use.started_s = std::chrono::duration<double>(kStarted.time_since_epoch()).count();
  return use;
}

void process_families(MetricsText& out, const ProcessUse& use) {
  out.family("process_cpu_seconds_total", "counter", "CPU time, user and system.");
  out.sample(use.cpu_s);
  out.gauge("process_resident_memory_bytes", "Memory that is in RAM.", use.resident_bytes);
  out.gauge("process_open_fds", "File descriptors in use.", use.open_fds);
  out.gauge("process_max_fds", "File descriptors there may be.", use.max_fds);
  out.gauge("process_start_time_seconds", "When the process began, since the epoch.",
            use.started_s);
}

}  // namespace kiln
