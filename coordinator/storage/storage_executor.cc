#include "coordinator/storage/storage_executor.h"

#include <algorithm>
#include <memory>

#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

constexpr int64_t kWriteUsesMs = 60'000, kCountStaleMs = 5'000;
constexpr int64_t kShareMs = 60'000;  // longer than the core takes to share it again

LogLine not_stored(std::string_view what, const Digest& key, const Error& error) {
  LogLine line(what, LogLine::Level::kWarning);
  line.add("key", key.short_hex()).add("state", "not_stored").add("reason", error.message);
  return line;
}

LogLine unreadable(std::string_view state, const Digest& program, const Error& error) {
  LogLine line("program", LogLine::Level::kWarning);
  line.add("key", program.short_hex()).add("state", state).add("reason", error.message);
  return line;
}

PendingTask stored_form(const DetachedTask& task) {
  return {task.graph, task.target, task.mode, task.audience, task.owner, task.lost};
}

}  // namespace

// A program that was taken back while the store looked is looked up again: the answer may be of
// before, and memory must not serve it.
void StorageExecutor::look_up(const LookUpProgram& action, std::function<void()> answered) {
  store_.look_up_program(
      action.program,
      on_loop<StoredProgram>(loop_, [this, action, answered = std::move(answered),
                                     taken_back = times_taken_back_](Result<StoredProgram> stored) {
        if (taken_back != times_taken_back_) return look_up(action, answered);
        const bool is_away = !stored && stored.error().code == Code::kUnavailable;
        if (is_away && outage_.may_pass(loop_.now_ms()))
          return asked_again_.push_back({action, answered});
        if (!is_away) outage_.over();
        loop_.step(looked_up(action, std::move(stored)));
        if (answered) answered();
      }));
}

ProgramLookedUp StorageExecutor::looked_up(const LookUpProgram& action,
                                           Result<StoredProgram> stored) {
  const Digest& program_key = action.program;
  ProgramLookedUp found{action.key, {}};
  if (stored) {
    // Read once, so that memory serves nothing that a client could not read.
    const auto program = program_from_json(stored->manifest);
    if (program && (program->template_stamp != template_stamp_ || !vouching_.suffices(*program) ||
                    (offers_ != nullptr && offers_->has_untried(*program)))) {
      found.stale = true;
      found.audience = stored->audience;
      if (vouching_.suffices(*program) && is_sound(*program))
        found.program_json = std::move(stored->manifest);
    } else if (program) {
      found.program_json = stored->manifest;
      found.audience = stored->audience;
      found.memory_only = stored->is_only_here;
      const std::string signature = signer_.signature_of(stored->manifest);
      if (stored->is_only_here)
        kept_.keep(loop_.now_ms(), program_key);  // asked for again, since it may go up meanwhile
      else
        kept_.stored(program_key);
      manifests_.insert(*program, {std::move(stored->manifest), signature, stored->is_only_here,
                                   revoked_.serial(), std::move(stored->audience)});
    } else {
      loop_.log(unreadable("corrupt", program_key, program.error()));
      store_.forget(program_key, nullptr);
    }
  } else if (stored.error().code == Code::kCorruption) {
    loop_.log(unreadable("corrupt", program_key, stored.error()));
  } else if (stored.error().code != Code::kNotFound) {
    ++read_failures_;
    loop_.log(unreadable("unreadable", program_key, stored.error()));
    found.read = fail(Code::kUnavailable, std::move(stored).error().message);
  }
  return found;
}

// From any thread.
PendingTaskStore::Done StorageExecutor::counting_failures() {
  return [this](const Status& status) {
    if (!status) loop_.post([this] { ++write_failures_; });
  };
}

// The acknowledgement follows the last record: puts are done in order.
void StorageExecutor::store(StoreRecords action) {
  RecordsStored stored{std::move(action.worker), std::move(action.acks)};
  if (action.records.empty()) return loop_.step(std::move(stored));
  const int64_t now_ms = unix_ms();
  for (TuningRecord& record : action.records) record.taken_at_ms = now_ms;
  TuningRecord last = std::move(action.records.back());
  action.records.pop_back();
  for (TuningRecord& record : action.records)
    store_.put_record(std::move(record), counting_failures());
  store_.put_record(std::move(last), [this, stored = std::move(stored)](const Status& status) {
    loop_.post([this, stored, failed = !status] {
      write_failures_ += failed ? 1 : 0;
      loop_.step(stored);
    });
  });
}

// The blob stays in memory whatever the disk says: the clients that wait ask for it next.
void StorageExecutor::store(StoreKernel action) {
  const Digest key = action.kernel.key, blob = action.kernel.blob;
  memory_.put(blob, action.binary);
  const auto put_blob = std::make_shared<Status>();
  store_.put_blob(std::move(action.binary),
                  [put_blob](Status status) { *put_blob = std::move(status); });
  const auto done = [this, key, blob](const Status& status) {
    if (!status) {
      memory_.hold(blob, loop_.now_ms() + hold_blobs_ms_);
      loop_.log(not_stored("kernel", key, status.error()));
    }
    loop_.step(KernelStored{key, status});
  };
  store_.put_kernel(
      {std::move(action.kernel), std::move(action.tuned_on), std::move(action.workload_text)},
      [this, put_blob, done](const Status& put_kernel) {
        const Status& cause = *put_blob ? put_kernel : *put_blob;
        loop_.post([done, cause] { done(cause); });
      });
}

void StorageExecutor::store(const StoreProgram& action) {
  const Digest key = action.program.key, task = action.task;
  const auto stored = [this, key, task](const Status& status) {
    loop_.post([this, key, task, status] {
      if (!status) loop_.log(not_stored("program", key, status.error()));
      needed_.ended(task);
      if (status) kept_.stored(key), manifests_.remove(key);  // what memory had is of before
      loop_.step(ProgramStored{task, status});
    });
  };
  store_.put_program(action.program, stored, action.audience);
}

void StorageExecutor::store(StoreDetached action) {
  const DetachedTask& task = action.task;
  tasks_.put(stored_form(task), std::move(action.graph_text),
             [this, stored = DetachedStored{action.key, task, {}}](Status status) mutable {
               stored.status = std::move(status);
               loop_.post([this, stored] {
                 write_failures_ += stored.status ? 0 : 1;
                 loop_.step(stored);
               });
             });
}

// If this write fails, the next incarnation does the task again: it finds the program in the cache,
// or fails again.
void StorageExecutor::end(const EndDetached& action) {
  const DetachedTask& task = action.task;
  const PendingTask stored = stored_form(task);
  if (action.outcome)
    tasks_.remove(stored, counting_failures());
  else
    tasks_.fail_for_good(stored, action.outcome.error(), counting_failures());
}

void StorageExecutor::forget(const ForgetDetached& action) {
  const DetachedTask& task = action.task;
  tasks_.remove(stored_form(task), counting_failures());
}

void StorageExecutor::store(const StoreLost& lost) {
  tasks_.set_lost(stored_form(lost.task), counting_failures());
}

void StorageExecutor::share(ShareBinary action) {
  memory_.put(action.digest, std::move(action.binary));
  memory_.hold(action.digest, loop_.now_ms() + kShareMs);
}

void StorageExecutor::keep(KeepProgram action) {
  const auto program = program_from_json(action.program_json);
  if (!program) return;
  const std::string signature = signer_.signature_of(action.program_json);
  needed_.ended(action.task);
  kept_.keep(loop_.now_ms(), program->key);
  if (const HitReply* before = manifests_.find(program->key))
    action.audience.add(before->audience());
  manifests_.insert(*program, {std::move(action.program_json), signature, true, revoked_.serial(),
                               std::move(action.audience)});
}

Status StorageExecutor::recover_tasks() {
  TRY(const PendingTaskStore::Tasks stored, tasks_.all());
  detached_damaged_ = stored.damaged;
  if (stored.damaged > 0)
    loop_.log(LogLine("flights", LogLine::Level::kWarning)
                  .add("state", "damaged")
                  .add("programs", stored.damaged)
                  .add("advice",
                       "what was queued there is lost: queue it again; `kiln warm "
                       "--forget-failed` ends this warning"));
  for (const PendingTask& task : stored.tasks)
    loop_.step(DetachedRecovered{
        {task.graph, task.target, task.mode, task.audience, task.owner, task.lost}, task.failure});
  return {};
}

void StorageExecutor::tick() {
  const bool is_away = !store_.away().empty();
  if (std::exchange(store_was_away_, is_away) && !is_away) kept_.end_waits(loop_.now_ms());
  for (const Digest& program : kept_.take_due(loop_.now_ms())) manifests_.remove(program);
  for (const LookUp& each : std::exchange(asked_again_, {})) look_up(each.action, each.answered);
  write_uses();
  count_stale();
}

bool StorageExecutor::is_sound(const Program& program) const {
  return std::ranges::all_of(program.kernels, [this](const ProgramKernel& kernel) {
    return kiln::is_sound(kernel, sound_versions_);
  });
}

// No template becomes stale while a coordinator runs, so none need be counted once there are none.
// Programs that an offer makes stale are not counted.
void StorageExecutor::count_stale() {
  const bool done = counted_stale_ && programs_stale_ == 0;
  if (done || counting_stale_ || loop_.now_ms() < count_stale_ms_) return;
  count_stale_ms_ = loop_.now_ms() + kCountStaleMs;
  counting_stale_ = true;
  store_.count_programs_not_of(template_stamp_, [this](const Result<int64_t>& count) {
    loop_.post([this, count] {
      counting_stale_ = false;
      counted_stale_ |= count.has_value();
      programs_stale_ = count.value_or(programs_stale_);
    });
  });
}

void StorageExecutor::write_uses() {
  if (loop_.now_ms() < write_uses_ms_) return;
  write_uses_ms_ = loop_.now_ms() + kWriteUsesMs;
  for (const Digest& program : manifests_.take_used()) store_.touch(program);
  for (const Digest& kernel : needed_.kernels(loop_.now_ms())) store_.touch_kernel(kernel);
}

void StorageExecutor::evicted(const std::vector<Digest>& programs) {
  for (const Digest& program : programs) manifests_.remove(program);
}

// Memory must not answer for these programs any more; the cache itself answers a miss for what
// lacks a blob.
void StorageExecutor::blob_is_missing(const Digest& blob) {
  const ManifestTable::Users users = manifests_.take_users_of(blob);
  for (const Digest& program : users.programs) {
    loop_.log(LogLine("blob", LogLine::Level::kWarning)
                  .add("digest", blob.short_hex())
                  .add("state", "missing")
                  .add("program", program.short_hex()));
    store_.forget(program, nullptr);
  }
  for (const Digest& kernel : users.kernels) store_.forget(kernel, nullptr);
}

}  // namespace kiln
