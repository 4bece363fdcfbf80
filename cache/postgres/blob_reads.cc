#include "cache/postgres/blob_reads.h"

#include <fmt/core.h>

#include <utility>

namespace kiln {
namespace {

Error closed() {
  return {Code::kUnavailable, "the store is being closed", 0};
}

Error not_believed(const std::string& object, bool is_there, const char* but) {
  return {
      Code::kUnavailable,
      fmt::format("the place of the binaries {} {}; {}",
                  is_there ? "gives other bytes than were put as" : "does not have", object, but),
      0};
}

}  // namespace

// Bytes that are wrong are asked for twice: one transfer may be an accident.
void BlobReads::get(const Digest& digest, const std::string& object, bool again,
                    Then<std::string> then) {
  objects_.get(object, [this, digest, object, again,
                        then = std::move(then)](Result<std::string> bytes) mutable {
    away_ = !bytes && bytes.error().code == Code::kUnavailable;
    if (bytes && Digest::of(*bytes) == digest) {
      suspects_.cleared(object);
      copies_.keep(digest, *bytes);
      return then(std::move(bytes));
    }
    const bool is_gone = !bytes && bytes.error().code == Code::kNotFound;
    const bool is_wrong = bytes || bytes.error().code == Code::kCorruption;
    if (!is_gone && !is_wrong) {
      const bool overloaded = bytes.error().code == Code::kOverloaded;
      return then(fail(Error{overloaded ? Code::kOverloaded : Code::kUnavailable,
                             bytes.error().message, bytes.error().retry_after_ms}));
    }
    if (closing_) return then(fail(closed()));
    if (is_wrong && !again) return get(digest, object, true, std::move(then));
    judge(std::make_shared<Suspect>(Suspect{digest, object, is_wrong, std::move(then)}));
  });
}

// A place that does not give the others either is another one, or does not know what it has.
void BlobReads::judge(const std::shared_ptr<Suspect>& suspect) {
  if (!suspects_.accused(suspect->object, Suspects::Clock::now()))
    return suspect->then(fail(not_believed(suspect->object, suspect->is_there,
                                           "that is believed once it has been so for a while")));
  writer_.group().submit(
      0,
      [suspect](PostgresIndex& index) -> Status {
        TRY(suspect->others, index.objects_beside(suspect->digest));
        return {};
      },
      [this, suspect](const Status& read) {
        if (!read) return suspect->then(fail(read.error()));
        if (suspect->others.empty()) return believe(*suspect);
        ask_for_others(suspect);
      });
}

void BlobReads::ask_for_others(const std::shared_ptr<Suspect>& suspect) {
  if (closing_) return suspect->then(fail(closed()));
  if (suspect->others.empty())
    return suspect->then(fail(not_believed(suspect->object, suspect->is_there,
                                           "nor does it give others as they were put")));
  const PostgresIndex::LiveObject other = std::move(suspect->others.back());
  suspect->others.pop_back();
  objects_.get(other.object, [this, suspect,
                              digest = other.digest](const Result<std::string>& bytes) {
    if (bytes && Digest::of(*bytes) == digest) return believe(*suspect);
    if (!bytes && bytes.error().code != Code::kNotFound && bytes.error().code != Code::kCorruption)
      return suspect->then(fail(Code::kUnavailable, bytes.error().message));
    ask_for_others(suspect);
  });
}

void BlobReads::believe(const Suspect& suspect) {
  if (closing_) return suspect.then(fail(closed()));
  suspects_.cleared(suspect.object);
  log_(fmt::format("object {} is {}: what needs it is made again", suspect.object,
                   suspect.is_there ? "damaged" : "lost"));
  damaged_ += suspect.is_there ? 1 : 0;
  doom(suspect.digest, suspect.object);
  suspect.then(suspect.is_there ? fail(Code::kCorruption, fmt::format("blob {} is damaged",
                                                                      suspect.digest.short_hex()))
                                : fail(Code::kNotFound, fmt::format("the object of blob {} is gone",
                                                                    suspect.digest.short_hex())));
}

void BlobReads::doom(const Digest& digest, const std::string& object) {
  writer_.group().submit(
      0, [digest, object](PostgresIndex& index) { return index.doom(digest, object); }, nullptr);
}

}  // namespace kiln
