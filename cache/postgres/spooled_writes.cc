#include "cache/postgres/spooled_writes.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "compiler_core/program/revocations.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstRetry{1'000}, kLongestRetry{30'000};
constexpr std::chrono::minutes kRowsFollowWithin{10};  // a binary's kernel
constexpr size_t kRowsAPage = 64;
constexpr size_t kBytesAPage = size_t{32} << 20;  // of binaries, in memory

PostgresIndex::ProgramRow row_of(const Program& program, const Audience& audience) {
  std::set<Digest> blobs;
  for (const ProgramKernel& kernel : program.kernels) blobs.insert(kernel.blob);
  return {program.key,
          program_to_json(program),
          program.template_stamp.hex(),
          {blobs.begin(), blobs.end()},
          audience};
}

void add_new(std::vector<Digest>& to, const std::vector<Digest>& keys) {
  for (const Digest& key : keys)
    if (std::ranges::find(to, key) == to.end()) to.push_back(key);
}

}  // namespace

// ---- Puts ----

// A writer whose term is over keeps nothing: it would come after what the next one stored.
bool SpooledWrites::may_spool(const Status& status) const {
  return spool_ && !status && status.error().code == Code::kUnavailable && term_.is_ours();
}

bool SpooledWrites::spool(const Digest& key, const Status& added) {
  if (!added) log_(fmt::format("cannot spool {}: {}", key.short_hex(), added.error().message));
  return added.has_value();
}

void SpooledWrites::put_blob(std::string bytes, Store::Done done) {
  const size_t size = bytes.size();
  const Digest digest = Digest::of(bytes);
  const auto upload = std::make_shared<Upload>(Upload{digest, std::move(bytes)});
  writer_.write(
      size, static_cast<int64_t>(size),
      [upload](PostgresIndex& index) { return index.put_blob(*upload); },
      [this, upload, done = std::move(done)](Status status, bool is_full) {
        if (!is_full && may_spool(status) &&
            spool(upload->digest, spool_->add_blob(upload->digest, upload->bytes)))
          status = {};
        if (done) done(std::move(status));
      },
      upload);
}

void SpooledWrites::put_kernel(StoredKernel kernel, Store::Done done) {
  const auto size =
      static_cast<int64_t>(kernel_to_json(kernel.kernel).size() + kernel.workload_text.size());
  const auto row = std::make_shared<const StoredKernel>(std::move(kernel));
  writer_.write(
      sizeof *row, size,
      [this, row](PostgresIndex& index) {
        if (spool_) spool_->set_overtaken(row->kernel.key, true);
        return index.put_kernel(*row);
      },
      [this, row, done = std::move(done)](Status status) {
        const Digest& key = row->kernel.key;
        if (spool_ && status) spool_->drop(key);
        if (spool_ && !status) spool_->set_overtaken(key, false);
        if (may_spool(status) && spool_->has_blob(row->kernel.blob) &&
            spool(key, spool_->add(*row, term_.epoch())))
          status = {};
        if (done) done(std::move(status));
      });
}

void SpooledWrites::put_program(const Program& program, const Audience& audience,
                                Store::Done done) {
  const auto row = std::make_shared<const PostgresIndex::ProgramRow>(row_of(program, audience));
  const size_t size = row->manifest.size();
  writer_.write(
      size, static_cast<int64_t>(size),
      [this, row](PostgresIndex& index) {
        if (spool_) spool_->set_overtaken(row->key, true);
        return index.put_program(*row);
      },
      [this, row, done = std::move(done)](Status status) {
        if (spool_ && status) spool_->drop(row->key);
        if (spool_ && !status) spool_->set_overtaken(row->key, false);
        if (may_spool(status) && spool_->has_any_blob(row->blobs)) {
          const auto parsed = program_from_json(row->manifest);
          if (parsed && spool(row->key, spool_->add(*parsed, row->audience, term_.epoch())))
            status.error().message += ": it waits on this machine's disk until the store is back";
        }
        if (done) done(std::move(status));
      });
}

void SpooledWrites::forget(const Digest& key, Store::Done done) {
  writer_.group().submit(
      0, [key](PostgresIndex& index) { return index.remove(key); },
      [this, key, done = std::move(done)](Status status) {
        if (spool_) spool_->drop(key);
        if (done) done(std::move(status));
      });
}

// The kernels of programs that wait here are known here alone.
void SpooledWrites::take_back(TakeBack what, int64_t through, Store::TookBack done,
                              const Store::Noted& act) {
  const auto taken = std::make_shared<TakenBack>();
  const auto all = std::make_shared<TakeBack>(std::move(what));
  writer_.group().submit(
      0,
      [this, taken, all, through, act](PostgresIndex& index) -> Status {
        if (spool_) add_new(all->kernels, spool_->kernels_of(all->programs));
        TRY(*taken, index.take_back(*all, through));
        return act ? index.note(came_to(*act, *taken)) : Status{};
      },
      [this, taken, all, done = std::move(done)](Status status) {
        if (!status) return done(fail(std::move(status).error()));
        if (spool_) {
          const TakenBack here = spool_->would_take_back(*all, taken->kernels);
          for (const auto* keys : {&here.kernels, &here.programs})
            for (const Digest& key : *keys) spool_->drop(key);
          add_new(taken->kernels, here.kernels);
          add_new(taken->programs, here.programs);
          taken->bytes += here.bytes;
        }
        done(std::move(*taken));
      });
}

void SpooledWrites::would_take_back(TakeBack what, Store::TookBack done) {
  const auto found = std::make_shared<TakenBack>();
  writer_.group().submit(
      0,
      [this, found, what = std::move(what)](PostgresIndex& index) -> Status {
        TakeBack all = what;
        if (spool_) add_new(all.kernels, spool_->kernels_of(all.programs));
        TRY(*found, index.would_take_back(all));
        if (!spool_) return {};
        const TakenBack here = spool_->would_take_back(all, found->kernels);
        add_new(found->kernels, here.kernels);
        add_new(found->programs, here.programs);
        return {};
      },
      [found, done = std::move(done)](Status status) {
        done(status ? Result<TakenBack>(std::move(*found)) : fail(std::move(status).error()));
      });
}

void SpooledWrites::drop_revoked(const std::vector<Revocation>& revoked) {
  if (!spool_) return;
  Revocations programs;
  std::set<Digest> kernels;
  for (const Revocation& each : revoked) {
    if (each.kind == Revocation::Kind::kProgram) {
      programs.revoke_program(each.key, each.through);
    } else {
      programs.revoke_kernel(each.key, each.through);
      kernels.insert(each.key);
    }
  }
  for (const Spool::Row& row : spool_->rows()) {
    const auto waiting = row.is_program ? spool_->program(row.key) : fail(Code::kNotFound, "");
    // A kernel has no serial: one that was made again after the revocation goes as well.
    if (row.is_program ? waiting && programs.cover(waiting->program) : kernels.contains(row.key))
      spool_->drop(row.key);
  }
}

// ---- Look-ups ----

Result<StoredKernel> SpooledWrites::kernel(const Digest& key) const {
  return spool_ ? spool_->kernel(key) : fail(Code::kNotFound, "there is no spool");
}

Result<std::string> SpooledWrites::blob(const Digest& digest) const {
  return spool_ ? spool_->blob(digest) : fail(Code::kNotFound, "there is no spool");
}

Result<Spool::WaitingProgram> SpooledWrites::program(const Digest& key) const {
  return spool_ ? spool_->program(key) : fail(Code::kNotFound, "there is no spool");
}

Result<StoredProgram> SpooledWrites::later_of(Result<Spool::WaitingProgram> waiting,
                                              Result<StoredProgram> found) {
  if (!waiting) return found;
  if (!found) return std::move(waiting->stored);
  const auto stored = program_from_json(found->manifest);
  const bool is_later = !stored || stored->serial < waiting->program.serial;
  return is_later ? Result<StoredProgram>(std::move(waiting->stored)) : std::move(found);
}

// ---- Sending up ----

struct SpooledWrites::Page {
  bool failed = false;  // the writer's thread
};

// Looked for first, and not by a put, since all writes wait behind one that waits for an answer.
void SpooledWrites::send_up() {
  if (!spool_ || closing_) return;
  {
    const std::scoped_lock lock(mu_);
    if (is_sending_ || Clock::now() < next_) return;
    spool_->drop_unneeded(kRowsFollowWithin);
    const Spool::Waiting waiting = spool_->waiting();
    if (waiting.programs + waiting.kernels == 0) return;
    is_sending_ = true;
  }
  objects_.list("", 1, [this](const Result<std::vector<ObjectInfo>>& listed) {
    if (!listed) return ended(false);
    writer_.group().submit(
        0,
        [](PostgresIndex& index) -> Status {
          index.objects_answer();
          return {};
        },
        [this](const Status& status) { status ? send_page() : ended(false); });
  });
}

// On the writer's thread, as are the answers.
void SpooledWrites::send_page() {
  if (closing_) return ended(false);
  const auto page = std::make_shared<Page>();
  std::set<Digest> sent;
  std::vector<Spool::Row> rows = spool_->rows();
  std::erase_if(rows, [](const Spool::Row& row) { return row.is_overtaken; });
  if (rows.empty()) return ended(true);
  size_t bytes = 0, taken = 0;
  for (; taken < std::min(rows.size(), kRowsAPage) && bytes < kBytesAPage; ++taken) {
    for (const Digest& digest : rows[taken].blobs) {
      auto blob = sent.insert(digest).second ? spool_->blob(digest) : fail(Code::kNotFound, "");
      if (!blob) continue;
      const size_t size = blob->size();
      bytes += size;
      const auto upload = std::make_shared<Upload>(Upload{digest, *std::move(blob)});
      writer_.write(
          size, static_cast<int64_t>(size),
          [upload](PostgresIndex& index) { return index.put_blob(*upload); }, Store::Done(),
          upload);
    }
  }
  rows.resize(taken);
  for (const Spool::Row& row : rows) send_row(page, row);
  writer_.group().submit(
      0, [](PostgresIndex&) -> Status { return {}; },
      [this, page](const Status& status) {
        const Spool::Waiting left = spool_->waiting();
        if (page->failed || !status || left.programs + left.kernels == 0)
          return ended(status.has_value() && !page->failed);
        send_page();
      });
}

void SpooledWrites::send_row(const std::shared_ptr<Page>& page, const Spool::Row& row) {
  const auto left = std::make_shared<bool>(false);  // as it is
  writer_.write(
      static_cast<size_t>(row.bytes), row.bytes,
      [this, row, left](PostgresIndex& index) { return write_row(index, row, *left); },
      [this, page, row, left](const Status& status) {
        const bool is_lost = !status && status.error().code == Code::kNotFound;
        if (is_lost)
          log_(fmt::format("{} {} was spooled, and its binaries are gone: it will be made again",
                           row.is_program ? "program" : "kernel", row.key.short_hex()));
        if (is_lost || (status && !*left)) return spool_->drop(row.key);
        page->failed = true;
      });
}

// kNotFound: a binary that it needs is neither stored nor here.
Status SpooledWrites::write_row(PostgresIndex& index, const Spool::Row& row, bool& left) {
  left = false;
  TRY(const bool is_outdated, index.has_later(row.is_program, row.key, row.epoch));
  if (is_outdated) return {};
  TRY(const std::vector<Digest> dead, index.not_live(row.blobs));
  if (!dead.empty())
    return fail(spool_->has_any_blob(dead) ? Code::kUnavailable : Code::kNotFound,
                "a binary is not stored");
  left = !spool_->is_latest(row.key);
  if (left) return {};
  if (row.is_program) {
    TRY(const Spool::WaitingProgram waiting, spool_->program(row.key));
    return index.put_program(row_of(waiting.program, waiting.stored.audience));
  }
  TRY(const StoredKernel kernel, spool_->kernel(row.key));
  return index.put_kernel(kernel);
}

void SpooledWrites::ended(bool well) {
  const std::scoped_lock lock(mu_);
  is_sending_ = false;
  backoff_ =
      well ? std::chrono::milliseconds(0) : std::clamp(backoff_ * 2, kFirstRetry, kLongestRetry);
  next_ = Clock::now() + backoff_;
}

}  // namespace kiln
