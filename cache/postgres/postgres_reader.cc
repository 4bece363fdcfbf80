#include "cache/postgres/postgres_reader.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "cache/local_blobs.h"
#include "cache/postgres/connection.h"
#include "cache/postgres/look_ups.h"
#include "cache/postgres/reads.h"

namespace kiln {
namespace {

constexpr int kReaderThreads = 2;
constexpr char kName[] = "kiln-coordinator follower";

}  // namespace

struct PostgresReader::Impl {
  Impl(const std::string& url, std::unique_ptr<ObjectStore> given, Path folder, int64_t bytes)
      : objects(std::move(given)),
        copies(std::move(folder), bytes),
        connection(url, kName),
        look_ups(
            std::make_unique<LookUps>(url, "kiln-coordinator follower look-ups", kReaderThreads)) {}
  // An answer of the objects that is under way comes before they go, and asks for nothing more.
  ~Impl() {
    look_ups.reset();
    objects.reset();
  }

  template <class Read>
  auto with(Read read) {
    const std::scoped_lock lock(mu);
    auto result = read(connection);
    postgres_away = !result;
    return result;
  }

  std::unique_ptr<ObjectStore> objects;
  LocalBlobs copies;
  std::mutex mu;
  PgConnection connection;  // guarded by mu
  std::unique_ptr<LookUps> look_ups;
  std::atomic<bool> postgres_away{false}, objects_away{false};
};

PostgresReader::PostgresReader(const std::string& url, std::unique_ptr<ObjectStore> objects,
                               Path copies, int64_t copies_bytes)
    : impl_(std::make_unique<Impl>(url, std::move(objects), std::move(copies), copies_bytes)) {}
PostgresReader::~PostgresReader() = default;

void PostgresReader::look_up_program(const Digest& program_key, Then<StoredProgram> then) {
  impl_->look_ups->program(program_key, [then = std::move(then)](Result<StoredProgram> found) {
    if (!found && found.error().code == Code::kCorruption) found.error().code = Code::kUnavailable;
    then(std::move(found));
  });
}

void PostgresReader::look_up_blob(const Digest& digest, Then<std::string> then) {
  if (auto copy = impl_->copies.get(digest)) return then(std::move(copy));
  impl_->look_ups->object(digest, [impl = impl_.get(), digest,
                                   then = std::move(then)](const Result<std::string>& object) {
    if (!object) return then(fail(object.error()));
    impl->objects->get(*object, [impl, digest, then](Result<std::string> bytes) {
      impl->objects_away = !bytes && bytes.error().code == Code::kUnavailable;
      const bool wrong = bytes && Digest::of(*bytes) != digest;
      if (wrong || (!bytes && bytes.error().code == Code::kCorruption))
        return then(fail(Code::kUnavailable, "blob " + digest.short_hex() + " came damaged"));
      if (bytes) impl->copies.keep(digest, *bytes);
      then(std::move(bytes));
    });
  });
}

void PostgresReader::look_up_link(const Digest& digest, Then<std::string> then) {
  impl_->look_ups->object(digest, [objects = impl_->objects.get(),
                                   then = std::move(then)](const Result<std::string>& object) {
    then(object ? objects->link(*object, kLinkLife) : fail(object.error()));
  });
}

Result<std::vector<Revocation>> PostgresReader::revocations() {
  return impl_->with([](PgConnection& connection) { return reads::revocations(connection); });
}

std::string PostgresReader::away() const {
  if (impl_->postgres_away) return "PostgreSQL does not answer";
  return impl_->objects_away ? "the store of binaries does not answer" : "";
}

Result<std::string> PostgresReader::leader() {
  return impl_->with([](PgConnection& connection) -> Result<std::string> {
    TRY(const PgRows terms,
        connection.run("SELECT address FROM terms WHERE until > clock_timestamp()"));
    return terms.size() == 0 ? std::string() : std::string(terms.bytes(0, 0));
  });
}

void PostgresReader::drop_copies() {
  impl_->copies.clear();
}

Status PostgresReader::touch(const std::vector<Digest>& programs) {
  return impl_->with([&](PgConnection& connection) -> Status {
    TRY_STATUS(connection.run(
        "UPDATE programs SET used_hour = now.hour"
        " FROM (SELECT floor(extract(epoch FROM clock_timestamp()) / 3600)::int AS hour) AS now"
        " WHERE key = ANY($1) AND used_hour < now.hour",
        PgValues().add(programs)));
    return {};
  });
}

}  // namespace kiln
