#include "coordinator/service/admin_handler.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace kiln {
namespace {

std::string describe(const AdminRequest& request) {
  switch (request.kind) {
    case AdminRequest::Kind::kDrain:
      return "drain " + request.worker;
    case AdminRequest::Kind::kPin:
      return "pin " + request.key.value_or(Digest{}).short_hex();
    case AdminRequest::Kind::kUnpin:
      return "unpin " + request.key.value_or(Digest{}).short_hex();
    case AdminRequest::Kind::kCollect:
      return fmt::format("collect down to {} bytes", request.amount);
    case AdminRequest::Kind::kForgetFailed:
      return "forget failed";
    case AdminRequest::Kind::kForget:
      return fmt::format("forget{}{}{}{}{}", request.dry_run ? " (dry run)" : "",
                         request.key ? " program " + request.key->short_hex() : "",
                         request.kernel ? " kernel " + request.kernel->short_hex() : "",
                         request.worker.empty() ? "" : " worker " + request.worker,
                         request.since_ms > 0 ? fmt::format(" since {}", request.since_ms) : "");
    case AdminRequest::Kind::kCancelDetached:
      return "cancel " + request.key.value_or(Digest{}).short_hex();
    case AdminRequest::Kind::kTuneLog:
      return fmt::format("tuning log after {}", request.amount);
  }
  return "an unknown request";
}

using Asked = AdminHandler::Asked;
using Answers = AdminHandler::Answers;

void reply(const Answers& to, const Asked& asked, const Result<std::string>& outcome) {
  to.reply(asked.peer, {asked.request.request, outcome});
}

AdminAct ended(AdminAct act, const Result<std::string>& outcome) {
  act.done = outcome.has_value();
  act.outcome = outcome ? *outcome : outcome.error().message;
  return act;
}

// Thread-safe.
void answer(const Answers& to, const Asked& asked, Result<std::string> outcome) {
  to.loop.post([to, asked, outcome = std::move(outcome)] {
    to.trail.note(ended(to.trail.begin(asked.who, describe(asked.request)), outcome),
                  [to, asked, outcome] { reply(to, asked, outcome); });
  });
}

// Answers an act that the store noted in the transaction that did it. Thread-safe.
void answer_noted(const Answers& to, const Asked& asked, const AdminAct& act, std::string outcome) {
  to.loop.post([to, asked, act, outcome = std::move(outcome)] {
    to.trail.was_noted(ended(act, outcome));
    reply(to, asked, outcome);
  });
}

}  // namespace

void AdminHandler::handle(const Asked& asked) {
  switch (asked.request.kind) {
    case AdminRequest::Kind::kPin:
    case AdminRequest::Kind::kUnpin:
      return pin(asked);
    case AdminRequest::Kind::kCollect:
      return collect(asked);
    case AdminRequest::Kind::kDrain:
      return drain(asked);
    case AdminRequest::Kind::kForgetFailed:
      return forget_failed(asked);
    case AdminRequest::Kind::kForget:
      return forget(asked);
    case AdminRequest::Kind::kCancelDetached:
      return cancel_detached(asked);
    case AdminRequest::Kind::kTuneLog:
      return tune_log(asked);
  }
  answer(answers_, asked, fail(Code::kUnsupported, "this coordinator knows no such request"));
}

void AdminHandler::pin(const Asked& asked) {
  const AdminRequest& request = asked.request;
  if (!request.key) {
    return answer(answers_, asked, fail(Code::kInvalidArgument, "which program? name its key"));
  }
  const bool pinned = request.kind == AdminRequest::Kind::kPin;
  const nlohmann::ordered_json json = {{"program", request.key->hex()}, {"pinned", pinned}};
  const AdminAct act =
      ended(answers_.trail.begin(asked.who, describe(request)), Result<std::string>(json.dump()));
  const auto done = [to = answers_, asked, act](const Status& status) {
    if (!status) return answer(to, asked, fail(status.error()));
    answer_noted(to, asked, act, act.outcome);
  };
  if (pinned) {
    store_.pin(*request.key, done, act);
  } else {
    store_.unpin(*request.key, done, act);
  }
}

void AdminHandler::collect(const Asked& asked) {
  const AdminRequest& request = asked.request;
  if (request.amount < 0) {
    return answer(answers_, asked, fail(Code::kInvalidArgument, "a size in bytes is 0 or more"));
  }
  store_.collect(
      request.amount, [to = answers_, asked](Store::Collected got, const Status& status) {
        // Not reaching the size is no failure of the request; the reply says why.
        const nlohmann::ordered_json json = {{"freed_bytes", got.bytes},
                                             {"programs", got.programs},
                                             {"entries", got.entries},
                                             {"stored_bytes", got.left_bytes},
                                             {"reached", status.has_value()},
                                             {"reason", status ? "" : status.error().message},
                                             {"damaged_files", got.damaged_files},
                                             {"damaged_bytes", got.damaged_bytes}};
        answer(to, asked, json.dump());
      });
}

// Programs are named, up to a hundred; the rest is counted.
void AdminHandler::forget(const Asked& asked) {
  const AdminRequest& request = asked.request;
  constexpr size_t kNamed = 100;
  TakeBack what;
  if (request.key) what.programs = {*request.key};
  if (request.kernel) what.kernels = {*request.kernel};
  what.worker = request.worker;
  what.since_ms = request.since_ms;
  const int said =
      (request.key ? 1 : 0) + (request.kernel ? 1 : 0) + (what.means_reports() ? 1 : 0);
  if (said != 1)
    return answer(answers_, asked,
                  fail(Code::kInvalidArgument,
                       "forget what? one of a program, a kernel, or a worker's reports and those "
                       "since a time"));
  const AdminAct act = answers_.trail.begin(asked.who, describe(request));
  const auto tell = [to = answers_, asked, act](const Result<TakenBack>& taken) {
    if (!taken) return answer(to, asked, fail(taken.error()));
    auto named = nlohmann::ordered_json::array();
    for (const Digest& program : taken->programs)
      if (named.size() < kNamed) named.push_back(program.hex());
    const nlohmann::ordered_json json = {
        {"forgotten", !asked.request.dry_run}, {"programs", taken->programs.size()},
        {"kernels", taken->kernels.size()},    {"records", taken->records},
        {"blobs", taken->blobs.size()},        {"program_keys", std::move(named)}};
    if (asked.request.dry_run) return answer(to, asked, json.dump());
    answer_noted(to, asked, act, json.dump());
  };
  if (request.dry_run)
    store_.would_take_back(std::move(what), tell);
  else
    storage_.take_back(std::move(what), tell, act);
}

void AdminHandler::cancel_detached(const Asked& asked) {
  const AdminRequest& request = asked.request;
  const auto count = [this] {
    const Stats stats = core_.stats(answers_.loop.now_ms());
    return stats.detached_queued + stats.detached_running + stats.detached_failed;
  };
  const int64_t before = count();
  if (request.key) answers_.loop.step(CancelDetached{*request.key});
  if (!request.key || count() == before)
    return answer(answers_, asked,
                  fail(Code::kNotFound,
                       "no such program is queued, runs or has failed without a "
                       "client; `kiln warm --status` names them"));
  const nlohmann::ordered_json json = {{"program", request.key->hex()}, {"cancelled", true}};
  answer(answers_, asked, json.dump());
}

// A page of so many records stays below a message's bound: a compiler's words have 4 KiB at most.
void AdminHandler::tune_log(const Asked& asked) {
  constexpr int64_t kRead = 500;
  const AdminRequest& request = asked.request;
  RecordQuery wanted{request.amount,        kRead,          request.since_ms, request.worker,
                     request.template_name, request.kernel, request.key};
  store_.list_records(std::move(wanted), [to = answers_, asked](const Result<RecordList>& list) {
    if (!list) return answer(to, asked, fail(list.error()));
    nlohmann::ordered_json json = {{"last_id", list->last_id},
                                   {"damaged", list->damaged},
                                   {"records", nlohmann::ordered_json::array()}};
    for (const ListedRecord& each : list->records) json["records"].push_back(tune_log_row(each));
    // Reading is no act, so log and audit do without it. A compiler's words need not be UTF-8.
    using Handling = nlohmann::ordered_json::error_handler_t;
    to.loop.post([to, asked, text = json.dump(-1, ' ', false, Handling::replace)] {
      reply(to, asked, text);
    });
  });
}

void AdminHandler::forget_failed(const Asked& asked) {
  const nlohmann::ordered_json json = {
      {"forgotten", core_.stats(answers_.loop.now_ms()).detached_failed}};
  answers_.loop.step(ForgetFailures{});
  storage_.forget_damaged_tasks();
  answer(answers_, asked, json.dump());
}

void AdminHandler::drain(const Asked& asked) {
  const AdminRequest& request = asked.request;
  const Stats stats = core_.stats(answers_.loop.now_ms());
  std::string there;
  for (const WorkerStats& worker : stats.workers) {
    if (worker.name != request.worker) {
      there += (there.empty() ? "" : ", ") + worker.name;
      continue;
    }
    answers_.loop.step(DrainRequested{request.worker});
    const nlohmann::ordered_json json = {
        {"worker", worker.name}, {"state", "draining"}, {"leases", worker.leases}};
    return answer(answers_, asked, json.dump());
  }
  answer(answers_, asked,
         fail(Code::kNotFound, fmt::format("no worker '{}'; there are: {}", request.worker,
                                           there.empty() ? "none" : there)));
}

}  // namespace kiln
