#include "cache/postgres/spool.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cache/sealed_rows.h"
#include "compiler_core/base/own_directory.h"
#include "compiler_core/base/text.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMagic = "kiln-spool 1 ";

// The contents of a row's file.
struct RowText {
  uint64_t epoch = 0;
  Digest seal;
  std::string_view first, second;  // of the file's bytes
};

Result<RowText> row_text(std::string_view bytes) {
  const auto bad = [] { return fail(Code::kCorruption, "not a row of a spool"); };
  const size_t end = bytes.find('\n');
  if (!bytes.starts_with(kMagic) || end == std::string_view::npos) return bad();
  std::string_view line = bytes.substr(kMagic.size(), end - kMagic.size());
  const std::string_view texts = bytes.substr(end + 1);
  RowText row;
  uint64_t size = 0;
  if (!read_number(take_word(line), row.epoch)) return bad();
  const auto seal = Digest::parse(take_word(line));
  if (!seal || !read_number(line, size) || size > texts.size()) return bad();
  row.seal = *seal;
  row.first = texts.substr(0, size);
  row.second = texts.substr(size);
  return row;
}

std::vector<Digest> blobs_of(const Program& program) {
  std::set<Digest> blobs;
  for (const ProgramKernel& kernel : program.kernels) blobs.insert(kernel.blob);
  return {blobs.begin(), blobs.end()};
}

Result<StoredKernel> kernel_in(const Digest& key, const RowText& row) {
  return read_kernel(key, row.first, row.second, row.seal);
}

Result<Spool::WaitingProgram> program_in(const Digest& key, const RowText& row) {
  TRY(Program program, program_from_json(row.first));
  if (row.seal != seal_program(key, row.first, joined(blobs_of(program)), row.second))
    return damaged("program", key);
  return Spool::WaitingProgram{
      std::move(program),
      {std::string(row.first), Audience::parse(row.second), /*is_only_here=*/true}};
}

tl::unexpected<Error> none(std::string_view what, const Digest& key) {
  return fail(Code::kNotFound, fmt::format("no {} {} is spooled", what, key.short_hex()));
}

}  // namespace

Spool::Spool(Path folder, int64_t max_bytes, std::unique_ptr<BlobStore> blobs,
             std::function<void(std::string)> log)
    : folder_(std::move(folder)),
      max_bytes_(max_bytes),
      store_(std::move(blobs)),
      log_(log ? std::move(log) : [](const std::string&) {}) {}

Result<std::unique_ptr<Spool>> Spool::open(Path folder, int64_t max_bytes,
                                           std::function<void(std::string)> log) {
  TRY(auto blobs, BlobStore::open(folder / "blobs"));
  TRY_STATUS(make_directories(folder / "kernels"));
  TRY_STATUS(make_directories(folder / "programs"));
  // Their contents are signed and served: seals show damage, not whose hand it was.
  for (const Path& each : {folder, folder / "blobs", folder / "kernels", folder / "programs"})
    TRY_STATUS(check_ours(each));
  std::unique_ptr<Spool> spool(
      new Spool(std::move(folder), max_bytes, std::move(blobs), std::move(log)));
  spool->scan();
  return spool;
}

// A binary without a row is one of a put that was killed before its row came: nobody was told of it.
void Spool::scan() {
  for (int shard = 0; shard < BlobStore::kShards; ++shard) {
    store_->remove_leftovers(shard, INT64_MAX);
    for (const BlobStore::File& file : store_->list(shard)) {
      if (!file.digest) continue;
      blobs_[*file.digest].bytes = file.bytes;
      bytes_ += file.bytes;
    }
  }
  scan_rows(false);
  scan_rows(true);
  drop_unneeded({});
  if (const Waiting found = waiting(); found.programs + found.kernels > 0)
    log_(fmt::format("{} programs and {} kernels wait in {} for the store", found.programs,
                     found.kernels, folder_.string()));
}

void Spool::scan_rows(bool programs) {
  const Path folder = folder_ / (programs ? "programs" : "kernels");
  remove_unpublished(folder);
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error), end;
  for (; !error && file != end; file.increment(error)) {
    const auto key = Digest::parse(file->path().filename().string());
    if (!key) continue;
    Row row;
    row.key = *key;
    row.is_program = programs;
    const auto bytes = read(programs, *key);
    const auto text = bytes ? row_text(*bytes) : fail(bytes.error());
    bool is_whole = false;
    if (text && programs) {
      const auto found = program_in(*key, *text);
      if ((is_whole = found.has_value())) row.blobs = blobs_of(found->program);
    } else if (text) {
      const auto found = kernel_in(*key, *text);
      if ((is_whole = found.has_value())) row.blobs = {found->kernel.blob};
    }
    if (!is_whole) {
      forget_damaged(programs, *key);
      continue;
    }
    row.epoch = text->epoch;
    row.bytes = static_cast<int64_t>(bytes->size());
    row.is_of_before = true;
    const std::scoped_lock lock(mu_);
    insert(std::move(row));
  }
}

Path Spool::file_of(bool is_program, const Digest& key) const {
  return folder_ / (is_program ? "programs" : "kernels") / key.hex();
}

Result<std::string> Spool::read(bool is_program, const Digest& key) const {
  return read_file(file_of(is_program, key));
}

void Spool::insert(Row row) {
  if (const auto before = rows_.find(row.key); before != rows_.end()) forget_row(before);
  for (const Digest& blob : row.blobs)
    if (const auto held = blobs_.find(blob); held != blobs_.end()) ++held->second.named_by;
  bytes_ += row.bytes;
  const Digest key = row.key;
  rows_.insert_or_assign(key, std::move(row));
}

void Spool::forget_row(std::map<Digest, Row>::iterator row) {
  for (const Digest& blob : row->second.blobs)
    if (const auto held = blobs_.find(blob); held != blobs_.end()) --held->second.named_by;
  bytes_ -= row->second.bytes;
  rows_.erase(row);
}

void Spool::forget_damaged(bool is_program, const Digest& key) {
  log_(fmt::format("the spooled {} {} is damaged, and will be made again",
                   is_program ? "program" : "kernel", key.short_hex()));
  std::error_code ignored;
  std::filesystem::remove(file_of(is_program, key), ignored);
  const std::scoped_lock lock(mu_);
  if (const auto row = rows_.find(key); row != rows_.end()) forget_row(row);
}

// ---- Adding ----

Status Spool::add_blob(const Digest& digest, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  {
    const std::scoped_lock lock(mu_);
    const bool is_new = !blobs_.contains(digest);
    if (is_new && !has_room(size))
      return fail(Code::kUnavailable,
                  fmt::format("the spool is full ({} of {} bytes)", bytes_, max_bytes_));
  }
  TRY_STATUS(store_->put(bytes));
  const std::scoped_lock lock(mu_);
  const auto [held, is_new] = blobs_.try_emplace(digest);
  held->second.added = Clock::now();
  // Its last row was dropped since the put, and the file with it.
  if (is_new && !store_->contains(digest)) {
    if (const auto again = store_->put(bytes); !again) {
      blobs_.erase(held);
      return fail(again.error());
    }
  }
  if (is_new) bytes_ += held->second.bytes = size;
  return {};
}

Status Spool::write(Row row, std::string_view seal, std::string_view first,
                    std::string_view second) {
  const std::string bytes =
      fmt::format("{}{} {} {}\n{}{}", kMagic, row.epoch, seal, first.size(), first, second);
  row.bytes = static_cast<int64_t>(bytes.size());
  {
    const std::scoped_lock lock(mu_);
    if (!has_room(row.bytes))
      return fail(Code::kUnavailable,
                  fmt::format("the spool is full ({} of {} bytes)", bytes_, max_bytes_));
  }
  TRY_STATUS(publish_file(file_of(row.is_program, row.key), bytes));
  const std::scoped_lock lock(mu_);
  insert(std::move(row));
  return {};
}

Status Spool::add(const StoredKernel& kernel, uint64_t epoch) {
  const std::string text = kernel_to_text(kernel), target = target_to_text(kernel.tuned_on);
  return write({kernel.kernel.key, false, epoch, {kernel.kernel.blob}, 0, false, false},
               seal_kernel(kernel.kernel.key, text, target).hex(), text, target);
}

Status Spool::add(const Program& program, const Audience& audience, uint64_t epoch) {
  Audience for_all = audience;
  if (const auto before = this->program(program.key)) for_all.add(before->stored.audience);
  const std::string manifest = program_to_json(program), text = for_all.to_text();
  const std::vector<Digest> blobs = blobs_of(program);
  return write({program.key, true, epoch, blobs, 0, false, false},
               seal_program(program.key, manifest, joined(blobs), text).hex(), manifest, text);
}

// ---- Looking up ----

Result<std::string> Spool::blob(const Digest& digest) {
  if (!has_blob(digest)) return none("blob", digest);
  auto bytes = store_->get(digest);
  if (bytes || (bytes.error().code != Code::kCorruption && bytes.error().code != Code::kNotFound))
    return bytes;
  log_("the spooled binary " + digest.short_hex() + " is damaged, and will be made again");
  const std::scoped_lock lock(mu_);
  if (const auto held = blobs_.find(digest); held != blobs_.end()) {
    bytes_ -= held->second.bytes;
    blobs_.erase(held);
  }
  return none("blob", digest);
}

Result<StoredKernel> Spool::kernel(const Digest& key) {
  {
    const std::scoped_lock lock(mu_);
    const auto row = rows_.find(key);
    if (row == rows_.end() || row->second.is_program) return none("kernel", key);
  }
  const auto bytes = read(false, key);
  if (!bytes) return none("kernel", key);  // it has just gone up
  const auto text = row_text(*bytes);
  auto kernel = text ? kernel_in(key, *text) : fail(text.error());
  if (kernel) return kernel;
  forget_damaged(false, key);
  return none("kernel", key);
}

Result<Spool::WaitingProgram> Spool::program(const Digest& key) {
  {
    const std::scoped_lock lock(mu_);
    const auto row = rows_.find(key);
    if (row == rows_.end() || !row->second.is_program) return none("program", key);
  }
  const auto bytes = read(true, key);
  if (!bytes) return none("program", key);
  const auto text = row_text(*bytes);
  auto program = text ? program_in(key, *text) : fail(text.error());
  if (program) return program;
  forget_damaged(true, key);
  return none("program", key);
}

bool Spool::has_blob(const Digest& digest) const {
  const std::scoped_lock lock(mu_);
  return blobs_.contains(digest);
}

bool Spool::has_any_blob(const std::vector<Digest>& digests) const {
  return std::ranges::any_of(digests, [this](const Digest& digest) { return has_blob(digest); });
}

std::vector<Spool::Row> Spool::rows() const {
  const std::scoped_lock lock(mu_);
  std::vector<Row> all;
  for (const bool programs : {false, true})
    for (const auto& [key, row] : rows_)
      if (row.is_program == programs) all.push_back(row);
  return all;
}

Spool::Waiting Spool::waiting() const {
  const std::scoped_lock lock(mu_);
  Waiting waiting;
  for (const auto& [key, row] : rows_) ++(row.is_program ? waiting.programs : waiting.kernels);
  waiting.bytes = bytes_;
  return waiting;
}

// ---- Dropping ----

void Spool::set_overtaken(const Digest& key, bool is_overtaken) {
  const std::scoped_lock lock(mu_);
  if (const auto row = rows_.find(key); row != rows_.end()) row->second.is_overtaken = is_overtaken;
}

bool Spool::is_latest(const Digest& key) const {
  const std::scoped_lock lock(mu_);
  const auto row = rows_.find(key);
  return row != rows_.end() && !row->second.is_overtaken;
}

// Files are removed under the lock: what is counted is what is on the disk.
void Spool::drop(const Digest& key) {
  const std::scoped_lock lock(mu_);
  const auto row = rows_.find(key);
  if (row == rows_.end()) return;
  std::error_code ignored;
  std::filesystem::remove(file_of(row->second.is_program, key), ignored);
  const std::vector<Digest> blobs = row->second.blobs;
  forget_row(row);
  for (const Digest& blob : blobs) {
    const auto held = blobs_.find(blob);
    if (held != blobs_.end() && held->second.named_by == 0) drop_blob(held);
  }
}

void Spool::drop_unneeded(std::chrono::milliseconds patience) {
  const std::scoped_lock lock(mu_);
  for (auto blob = blobs_.begin(); blob != blobs_.end();) {
    const bool goes = blob->second.named_by == 0 && Clock::now() - blob->second.added >= patience;
    blob = goes ? drop_blob(blob) : std::next(blob);
  }
}

std::map<Digest, Spool::Blob>::iterator Spool::drop_blob(std::map<Digest, Blob>::iterator blob) {
  (void)store_->remove(blob->first);
  bytes_ -= blob->second.bytes;
  return blobs_.erase(blob);
}

std::vector<Digest> Spool::kernels_of(const std::vector<Digest>& programs) {
  std::vector<Digest> kernels;
  for (const Digest& key : programs)
    if (const auto waiting = program(key))
      for (const ProgramKernel& kernel : waiting->program.kernels) kernels.push_back(kernel.key);
  return kernels;
}

TakenBack Spool::would_take_back(const TakeBack& what, const std::vector<Digest>& kernels) {
  TakenBack found;
  std::set<Digest> meant(kernels.begin(), kernels.end());
  const auto reported = [&](const std::string& text) {
    return what.means_reports() &&
           (what.worker.empty() || text.find(json_member("worker", what.worker)) != text.npos) &&
           (what.owner.empty() || text.find(json_member("key", what.owner)) != text.npos);
  };
  for (const Row& row : rows()) {  // kernels come first
    bool goes = false;
    if (!row.is_program) {
      const auto waiting = kernel(row.key);
      goes = meant.contains(row.key) || (waiting && reported(kernel_to_json(waiting->kernel)));
      if (goes) meant.insert(row.key);
    } else if (const auto waiting = program(row.key)) {
      goes = std::ranges::find(what.programs, row.key) != what.programs.end() ||
             reported(waiting->stored.manifest) ||
             std::ranges::any_of(waiting->program.kernels, [&](const ProgramKernel& needed) {
               return meant.contains(needed.key);
             });
    }
    if (!goes) continue;
    (row.is_program ? found.programs : found.kernels).push_back(row.key);
    found.bytes += row.bytes;
  }
  return found;
}

}  // namespace kiln
