#include "cache/postgres/blob_reads.h"

#include <fmt/core.h>

#include <utility>

namespace kiln {
namespace {

Error closed() {
  return {Code::kUnavailable, "the store is being closed", 0};
}

Error not_there(const std::string& object, const char* but) {
  return {Code::kUnavailable,
          fmt::format("the place of the binaries says that {} is not there; {}", object, but), 0};
}

}  // namespace

// Bytes that are wrong are asked for twice before that is believed.
void BlobReads::get(const Digest& digest, const std::string& object, bool again,
                    Then<std::string> then) {
  objects_.get(object, [this, digest, object, again,
                        then = std::move(then)](Result<std::string> bytes) mutable {
    away_ = !bytes && bytes.error().code == Code::kUnavailable;
    if (bytes && Digest::of(*bytes) == digest) {
      absences_.over(object);
      copies_.keep(digest, *bytes);
      return then(std::move(bytes));
    }
    const bool gone = !bytes && bytes.error().code == Code::kNotFound;
    const bool wrong = bytes || bytes.error().code == Code::kCorruption;
    if (!gone && !wrong) {
      const bool overloaded = bytes.error().code == Code::kOverloaded;
      return then(fail(Error{overloaded ? Code::kOverloaded : Code::kUnavailable,
                             bytes.error().message, bytes.error().retry_after_ms}));
    }
    if (closing_) return then(fail(closed()));
    if (gone) return judge(std::make_shared<Absent>(Absent{digest, object, std::move(then)}));
    if (!again) return get(digest, object, true, std::move(then));
    ++damaged_;
    doom(digest, object);
    then(fail(Code::kCorruption, fmt::format("blob {} is damaged", digest.short_hex())));
  });
}

// A place that does not have the others either is another one, or does not know what it has.
void BlobReads::judge(const std::shared_ptr<Absent>& absent) {
  if (!absences_.said(absent->object, Absences::Clock::now()))
    return absent->then(
        fail(not_there(absent->object, "that is believed once it has been so for a while")));
  writer_.group().submit(
      0,
      [absent](PostgresIndex& index) -> Status {
        TRY(absent->others, index.objects_beside(absent->digest));
        return {};
      },
      [this, absent](const Status& read) {
        if (!read) return absent->then(fail(read.error()));
        if (absent->others.empty()) return believe(*absent);
        ask_for_others(absent);
      });
}

void BlobReads::ask_for_others(const std::shared_ptr<Absent>& absent) {
  if (closing_) return absent->then(fail(closed()));
  if (absent->others.empty())
    return absent->then(
        fail(not_there(absent->object, "nor are others: is it the place where they were put?")));
  const std::string other = std::move(absent->others.back());
  absent->others.pop_back();
  objects_.get(other, [this, absent](const Result<std::string>& bytes) {
    if (bytes) return believe(*absent);
    if (bytes.error().code != Code::kNotFound)
      return absent->then(fail(Code::kUnavailable, bytes.error().message));
    ask_for_others(absent);
  });
}

void BlobReads::believe(const Absent& absent) {
  if (closing_) return absent.then(fail(closed()));
  absences_.over(absent.object);
  log_(fmt::format("object {} is lost: what needs it is made again", absent.object));
  doom(absent.digest, absent.object);
  absent.then(fail(Code::kNotFound,
                   fmt::format("the object of blob {} is gone", absent.digest.short_hex())));
}

void BlobReads::doom(const Digest& digest, const std::string& object) {
  writer_.group().submit(
      0, [digest, object](PostgresIndex& index) { return index.doom(digest, object); }, nullptr);
}

}  // namespace kiln
