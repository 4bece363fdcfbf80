// Format 3. Digests are 32 bytes, `hour`s count from 1970, by the coordinators' wall clock; times are
// the database's own, which alone are compared. Seals are those of sealed_rows.h.
//
//   meta           one row: the format, and the oldest formats of which a build may read and write it
//   terms          who may write, one row a pool (term.h)
//   blobs          the bytes of a binary are the object `object`, of a name that is never used for
//                  other bytes. state: P it is being uploaded; L live; D doomed, of no use any more;
//                  X its object is being removed. until: as long as the state is to be left alone
//   kernels        kernel: kernel_to_text; target: target_to_text
//   programs       manifest: program_to_json; blobs: their digests in a row, as the seal has them;
//                  stamp: Program::template_stamp in hex; audience: Audience::to_text
//   program_blobs, program_kernels    what a program needs
//   pins           programs that are never evicted, whether they are there or not
//   records        tuning records, kept when binaries go; id grows with time
//   winners        every schedule that ever won; id grows with time
//   kin            workloads that differ in sizes only have one kin; sizes: little-endian i64
//   revoked        what was taken back (taking_back.h)
//   totals         one row: sums over the others, which triggers keep
//   acts           (since 2) what operators asked for (cache/admin_act.h); id grows with time
//   offers         (since 3) kernels that are offered as candidates (cache/offer_table.h). key: OfferedKernel::key(), with a
//                  digest of the value; place: OfferedKernel::place(); owner: the name of a key; value: offered_to_text
#include "cache/postgres/schema.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln {
namespace {

const std::vector<const char*> kFirstTables = {
    "CREATE TABLE meta (schema int NOT NULL, min_reader int NOT NULL, min_writer int NOT NULL)",
    "CREATE TABLE terms (pool text PRIMARY KEY, epoch bigint NOT NULL, holder text NOT NULL,"
    " address text NOT NULL, until timestamptz NOT NULL)",
    "CREATE SEQUENCE object_number",
    "CREATE TABLE blobs (digest bytea PRIMARY KEY, object text NOT NULL UNIQUE,"
    " bytes bigint NOT NULL, state \"char\" NOT NULL, until timestamptz NOT NULL)",
    "CREATE INDEX blobs_to_go ON blobs (until) WHERE state <> 'L'",
    "CREATE TABLE kernels (key bytea PRIMARY KEY, blob bytea NOT NULL REFERENCES blobs,"
    " kernel text NOT NULL, target bytea NOT NULL, seal bytea NOT NULL, epoch bigint NOT NULL,"
    " used_hour int NOT NULL, bytes bigint GENERATED ALWAYS AS"
    " (octet_length(kernel) + octet_length(target)) STORED)",
    "CREATE INDEX kernels_of_blob ON kernels (blob)",
    "CREATE INDEX kernels_by_use ON kernels (used_hour)",
    "CREATE TABLE programs (key bytea PRIMARY KEY, manifest text NOT NULL, blobs bytea NOT NULL,"
    " stamp text NOT NULL, audience text NOT NULL, seal bytea NOT NULL, epoch bigint NOT NULL,"
    " pinned bool NOT NULL, used_hour int NOT NULL, bytes bigint GENERATED ALWAYS AS"
    " (octet_length(manifest) + octet_length(blobs)) STORED)",
    "CREATE INDEX programs_to_evict ON programs (used_hour) WHERE NOT pinned",
    "CREATE INDEX programs_by_use ON programs (used_hour, key)",
    "CREATE INDEX programs_by_stamp ON programs (stamp)",
    "CREATE TABLE program_blobs (program bytea REFERENCES programs ON DELETE CASCADE,"
    " digest bytea REFERENCES blobs, PRIMARY KEY (program, digest))",
    "CREATE INDEX programs_of_blob ON program_blobs (digest)",
    "CREATE TABLE program_kernels (program bytea REFERENCES programs ON DELETE CASCADE,"
    " kernel bytea, PRIMARY KEY (program, kernel))",
    "CREATE INDEX programs_of_kernel ON program_kernels (kernel)",
    "CREATE TABLE pins (key bytea PRIMARY KEY, since timestamptz NOT NULL)",
    "CREATE TABLE records (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " kernel_key bytea NOT NULL, workload bytea NOT NULL, target bytea NOT NULL,"
    " schedule bytea NOT NULL, verdict int NOT NULL, log bytea NOT NULL, samples bytea NOT NULL,"
    " binary_digest bytea NOT NULL, worker bytea NOT NULL, taken_at_ms bigint NOT NULL,"
    " seed bigint NOT NULL, sentinel_us float8 NOT NULL, template_version int NOT NULL,"
    " owner bytea NOT NULL, seal bytea NOT NULL UNIQUE)",
    "CREATE INDEX records_of_kernel ON records (kernel_key, id)",
    "CREATE SEQUENCE winner_number",
    "CREATE TABLE winners (id bigint PRIMARY KEY DEFAULT nextval('winner_number'),"
    " workload bytea NOT NULL, schedule text NOT NULL, UNIQUE (workload, schedule))",
    "CREATE TABLE kin (workload bytea PRIMARY KEY, kin bytea NOT NULL, sizes bytea NOT NULL)",
    "CREATE INDEX workloads_of_kin ON kin (kin)",
    "CREATE TABLE revoked (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " kind int NOT NULL, key bytea NOT NULL, through bigint NOT NULL, at_ms bigint NOT NULL)",
    "CREATE TABLE totals (programs bigint NOT NULL, kernels bigint NOT NULL,"
    " records bigint NOT NULL, blob_bytes bigint NOT NULL, bytes bigint NOT NULL)",
    "INSERT INTO totals VALUES (0, 0, 0, 0, 0)",
    // A blob counts while it is live.
    "CREATE FUNCTION weigh_blob() RETURNS trigger LANGUAGE plpgsql AS $$"
    " DECLARE gained bigint := 0; BEGIN"
    " IF TG_OP <> 'DELETE' THEN IF NEW.state = 'L' THEN gained := NEW.bytes; END IF; END IF;"
    " IF TG_OP <> 'INSERT' THEN"
    "  IF OLD.state = 'L' THEN gained := gained - OLD.bytes; END IF; END IF;"
    " IF gained <> 0 THEN UPDATE totals SET blob_bytes = blob_bytes + gained,"
    "  bytes = totals.bytes + gained; END IF;"
    " RETURN NULL; END $$",
    "CREATE TRIGGER weigh AFTER INSERT OR DELETE OR UPDATE OF state, bytes ON blobs"
    " FOR EACH ROW EXECUTE FUNCTION weigh_blob()",
    "CREATE FUNCTION weigh_program() RETURNS trigger LANGUAGE plpgsql AS $$"
    " DECLARE rows bigint := 0; gained bigint := 0; BEGIN"
    " IF TG_OP <> 'DELETE' THEN rows := 1; gained := NEW.bytes; END IF;"
    " IF TG_OP <> 'INSERT' THEN rows := rows - 1; gained := gained - OLD.bytes; END IF;"
    " UPDATE totals SET programs = programs + rows, bytes = totals.bytes + gained;"
    " RETURN NULL; END $$",
    "CREATE TRIGGER weigh AFTER INSERT OR DELETE OR UPDATE OF manifest, blobs ON programs"
    " FOR EACH ROW EXECUTE FUNCTION weigh_program()",
    "CREATE FUNCTION weigh_kernel() RETURNS trigger LANGUAGE plpgsql AS $$"
    " DECLARE rows bigint := 0; gained bigint := 0; BEGIN"
    " IF TG_OP <> 'DELETE' THEN rows := 1; gained := NEW.bytes; END IF;"
    " IF TG_OP <> 'INSERT' THEN rows := rows - 1; gained := gained - OLD.bytes; END IF;"
    " UPDATE totals SET kernels = kernels + rows, bytes = totals.bytes + gained;"
    " RETURN NULL; END $$",
    "CREATE TRIGGER weigh AFTER INSERT OR DELETE OR UPDATE OF kernel, target ON kernels"
    " FOR EACH ROW EXECUTE FUNCTION weigh_kernel()",
    "CREATE FUNCTION count_records() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP = 'INSERT' THEN"
    "  UPDATE totals SET records = records + (SELECT count(*) FROM changed);"
    " ELSE UPDATE totals SET records = records - (SELECT count(*) FROM changed); END IF;"
    " RETURN NULL; END $$",
    "CREATE TRIGGER count_new AFTER INSERT ON records REFERENCING NEW TABLE AS changed"
    " FOR EACH STATEMENT EXECUTE FUNCTION count_records()",
    "CREATE TRIGGER count_gone AFTER DELETE ON records REFERENCING OLD TABLE AS changed"
    " FOR EACH STATEMENT EXECUTE FUNCTION count_records()",
};

// Writers of format 1 know nothing of it, and need not.
const std::vector<const char*> kActs = {
    "CREATE TABLE acts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at_ms bigint NOT NULL,"
    " coordinator text NOT NULL, who text NOT NULL, request text NOT NULL, done bool NOT NULL,"
    " outcome text NOT NULL)",
};

// Nor of these: a leader of before has no candidates of others', as one whose offers are gone.
const std::vector<const char*> kOffers = {
    "CREATE TABLE offers (key text PRIMARY KEY, place text NOT NULL, owner text NOT NULL,"
    " made_ms bigint NOT NULL, value bytea NOT NULL, bytes bigint GENERATED ALWAYS AS"
    " (octet_length(value)) STORED)",
    "CREATE INDEX offers_for ON offers (place, made_ms)",
};

// Not by to_regclass(): a session remembers what it did not find, and another one may have made it.
Result<bool> has_tables(PgConnection& connection) {
  TRY(const PgRows found, connection.run("SELECT EXISTS (SELECT FROM pg_catalog.pg_tables"
                                         " WHERE schemaname = 'kiln' AND tablename = 'meta')"));
  return found.boolean(0, 0);
}

struct Meta {
  int64_t schema = 0, min_reader = 0, min_writer = 0;
};

Result<Meta> read_meta(PgConnection& connection) {
  TRY(const PgRows rows, connection.run("SELECT schema, min_reader, min_writer FROM kiln.meta"));
  if (rows.size() != 1)
    return fail(Code::kUnsupported, "the database's table kiln.meta does not have one row");
  return Meta{rows.integer(0, 0), rows.integer(0, 1), rows.integer(0, 2)};
}

Status check(const Meta& there, SchemaUse use, const SchemaFormats& known) {
  const int64_t oldest =
      use == SchemaUse::kRead ? there.min_reader : std::max(there.min_reader, there.min_writer);
  if (oldest > known.own())
    return fail(
        Code::kUnsupported,
        fmt::format("the database has Kiln's tables in format {}, which builds of format {} "
                    "and later may {}, and this is one of {}: start a newer Kiln",
                    there.schema, oldest, use == SchemaUse::kRead ? "read" : "write", known.own()));
  if (there.schema < known.oldest)
    return fail(Code::kUnsupported,
                fmt::format("the database has Kiln's tables in format {}, and this build takes "
                            "those of {} and later to {}: start a release between them once",
                            there.schema, known.oldest, known.own()));
  return {};
}

// UPDATE waits for transactions that are fenced by the term; those after it find it gone.
Status take_step(PgConnection& connection, const SchemaStep& step, int64_t format) {
  for (const char* statement : step.statements) TRY_STATUS(connection.run(statement));
  const PgValues meta =
      PgValues().add(format).add(int64_t{step.min_reader}).add(int64_t{step.min_writer});
  if (format == 1) {
    TRY_STATUS(connection.run("INSERT INTO meta VALUES ($1, $2, $3)", meta));
    return {};
  }
  TRY_STATUS(
      connection.run("UPDATE terms SET until = '-infinity', holder = ''"
                     " WHERE $1 > (SELECT min_writer FROM meta)",
                     PgValues().add(int64_t{step.min_writer})));
  TRY_STATUS(
      connection.run("UPDATE meta SET schema = $1, min_reader = greatest(min_reader, $2),"
                     " min_writer = greatest(min_writer, $3)",
                     meta));
  return {};
}

Status take_steps(PgConnection& connection, const SchemaFormats& known) {
  TRY_STATUS(connection.run("SELECT pg_advisory_xact_lock(hashtext('kiln schema'))"));
  TRY(const bool there, has_tables(connection));
  int64_t format = 0;
  if (there) {
    TRY(const Meta meta, read_meta(connection));
    TRY_STATUS(check(meta, SchemaUse::kWrite, known));
    format = meta.schema;
  } else {
    TRY_STATUS(connection.run("CREATE SCHEMA IF NOT EXISTS kiln"));
  }
  for (; format < known.own(); ++format)
    TRY_STATUS(take_step(connection, known.steps[static_cast<size_t>(format)], format + 1));
  return {};
}

}  // namespace

const SchemaFormats& postgres_formats() {
  static const SchemaFormats formats{{{1, 1, kFirstTables}, {1, 1, kActs}, {1, 1, kOffers}}};
  return formats;
}

// One of several that start at once takes the steps; the others wait for it.
Status prepare_postgres_schema(PgConnection& connection, const SchemaFormats& known) {
  TRY(const bool there, has_tables(connection));
  if (there) {
    TRY(const Meta meta, read_meta(connection));
    TRY_STATUS(check(meta, SchemaUse::kWrite, known));
    if (meta.schema >= known.own()) return {};
  }
  TRY_STATUS(connection.run("BEGIN"));
  Status taken = take_steps(connection, known);
  const auto ended = connection.run(taken ? "COMMIT" : "ROLLBACK");
  if (taken && !ended) return fail(ended.error());
  return taken;
}

Status check_postgres_schema(PgConnection& connection, SchemaUse use, const SchemaFormats& known) {
  TRY(const bool there, has_tables(connection));
  if (!there) return fail(Code::kNotFound, "the database has no tables of Kiln's");
  TRY(const Meta meta, read_meta(connection));
  return check(meta, use, known);
}

}  // namespace kiln
