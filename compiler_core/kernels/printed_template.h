// PrintedTemplate: a template that prints source from a struct of decisions, for one backend and
// one family of workloads. Most of Kiln's own are.
#pragma once

#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

class PrintedTemplateBase : public KernelTemplate {
 public:
  std::string_view name() const final { return name_; }
  int version() const final { return version_; }
  bool covers(const Workload& workload, const Target& target) const final;
  Result<std::vector<Schedule>> candidates(const Workload& workload,
                                           const Target& target) const final {
    return candidates_(workload, target);
  }
  Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                const Target& target) const final;

 protected:
  using Candidates = Result<std::vector<Schedule>> (*)(const Workload&, const Target&);
  PrintedTemplateBase(std::string_view name, int version, Backend backend, Family family,
                      Candidates list)
      : name_(name), version_(version), backend_(backend), family_(family), candidates_(list) {}

 private:
  virtual Result<Source> print(const Graph& graph, const Schedule& schedule,
                               const Target& target) const = 0;

  const std::string_view name_;
  const int version_;
  const Backend backend_;
  const Family family_;
  const Candidates candidates_;
};

// `Decisions` has static from(const Schedule&).
template <class Decisions>
class PrintedTemplate final : public PrintedTemplateBase {
 public:
  using Print = Result<Source> (*)(const Graph&, const Decisions&, const Target&);
  PrintedTemplate(std::string_view name, int version, Backend backend, Family family,
                  Candidates list, Print text_of)
      : PrintedTemplateBase(name, version, backend, family, list), print_(text_of) {}

 private:
  Result<Source> print(const Graph& graph, const Schedule& schedule,
                       const Target& target) const override {
    TRY(const Decisions decisions, Decisions::from(schedule));
    return print_(graph, decisions, target);
  }

  const Print print_;
};

}  // namespace kiln
