#include "cache/postgres/postgres_offers.h"

#include <memory>
#include <utility>

namespace kiln {
namespace {

Result<std::vector<ListedOffer>> listed(PgConnection& connection) {
  TRY(const PgRows rows, connection.run("SELECT key, owner, made_ms, bytes FROM offers"
                                        " ORDER BY made_ms, key"));
  std::vector<ListedOffer> all;
  for (int64_t row = 0; row < rows.size(); ++row)
    all.push_back({std::string(rows.bytes(row, 0)), std::string(rows.bytes(row, 1)),
                   rows.integer(row, 2), rows.integer(row, 3)});
  return all;
}

Result<std::string> text_of(PgConnection& connection, const std::string& key) {
  TRY(const PgRows rows,
      connection.run("SELECT value FROM offers WHERE key = $1", PgValues().add_text(key)));
  if (rows.size() == 0) return fail(Code::kNotFound, "no offered kernel has this key");
  return std::string(rows.bytes(0, 0));
}

}  // namespace

Result<std::vector<ListedOffer>> PostgresOffers::list_offers() {
  return connections_.with([](PgConnection& reader) { return listed(reader); });
}

// On the writer's thread: who asks must not wait.
void PostgresOffers::look_up_offer(std::string key, Got got) {
  const auto found = std::make_shared<std::string>();
  const size_t bytes = key.size();
  writer_.group().submit(
      bytes,
      [this, key = std::move(key), found](PostgresIndex&) -> Status {
        TRY(*found, connections_.with([&](PgConnection& reader) { return text_of(reader, key); }));
        return {};
      },
      [found, got = std::move(got)](Status status) {
        got(status ? Result<std::string>(std::move(*found)) : fail(std::move(status).error()));
      });
}

void PostgresOffers::put_offer(ListedOffer offer, std::string text, Done done) {
  const size_t bytes = offer.key.size() + text.size();
  writer_.group().submit(
      bytes,
      [offer = std::move(offer), text = std::move(text)](PostgresIndex& index) {
        return index.put_offer(offer, text);
      },
      std::move(done));
}

void PostgresOffers::remove_offers(std::string owner, int64_t until_ms, Done done) {
  const size_t bytes = owner.size();
  writer_.group().submit(
      bytes,
      [owner = std::move(owner), until_ms](PostgresIndex& index) {
        return index.remove_offers(owner, until_ms);
      },
      std::move(done));
}

// ---- The writer's ----

Status PostgresIndex::put_offer(const ListedOffer& offer, const std::string& text) {
  const std::string place = offer.key.substr(0, offer.key.rfind('/') + 1);
  TRY_STATUS(
      run("INSERT INTO offers VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO UPDATE"
          " SET owner = excluded.owner, made_ms = excluded.made_ms, value = excluded.value",
          PgValues()
              .add_text(offer.key)
              .add_text(place)
              .add_text(offer.owner)
              .add(offer.made_ms)
              .add_bytes(text)));
  TRY_STATUS(
      run("DELETE FROM offers WHERE place = $1 AND key NOT IN"
          " (SELECT key FROM offers WHERE place = $1 ORDER BY made_ms DESC, key LIMIT $2)",
          PgValues().add_text(place).add(static_cast<int64_t>(OfferTable::kMostEach))));
  // The owner who has the most loses one, so that nobody pushes out the few of another.
  for (;;) {
    TRY(const PgRows held, run("SELECT coalesce(sum(bytes), 0)::bigint FROM offers"));
    if (held.integer(0, 0) <= PostgresOffers::kMostBytes) return {};
    TRY_STATUS(
        run("DELETE FROM offers WHERE key = (SELECT key FROM offers WHERE owner ="
            " (SELECT owner FROM offers GROUP BY owner ORDER BY sum(bytes) DESC LIMIT 1)"
            " ORDER BY made_ms, key LIMIT 1)"));
  }
}

Status PostgresIndex::remove_offers(const std::string& owner, int64_t until_ms) {
  TRY_STATUS(run("DELETE FROM offers WHERE owner = $1 AND made_ms < $2",
                 PgValues().add_text(owner).add(until_ms)));
  return {};
}

}  // namespace kiln
