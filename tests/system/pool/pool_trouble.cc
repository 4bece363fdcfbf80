#include <fmt/format.h>

#include <cmath>

#include "tests/system/pool/pool_drill.h"

namespace kiln::testing {
namespace {

using Kind = PoolTrouble::Kind;

// What a leader says to PostgreSQL to keep its term and to publish, in that order.
constexpr const char* kStatements[] = {"UPDATE terms SET until = clock",
                                       "INSERT INTO blobs AS",
                                       "FOR SHARE",
                                       "SET state = 'L'",
                                       "INSERT INTO records",
                                       "INSERT INTO kin",
                                       "INSERT INTO kernels",
                                       "INSERT INTO programs",
                                       "INSERT INTO program_kernels",
                                       "COMMIT"};
constexpr int kStatementCount = std::ssize(kStatements);

constexpr PacketFilter::Cut kLosses[] = {PacketFilter::Cut::kBoth, PacketFilter::Cut::kToServer,
                                         PacketFilter::Cut::kFromServer};
constexpr TcpProxy::Mode kCuts[] = {TcpProxy::Mode::kRefuse, TcpProxy::Mode::kDeafToClient,
                                    TcpProxy::Mode::kDeafToServer};

int between(int least, int most, std::mt19937_64& random) {
  return std::uniform_int_distribution(least, most)(random);
}

// As often below the geometric mean as above.
int by_orders(double least, double most, std::mt19937_64& random) {
  return static_cast<int>(
      std::exp(std::uniform_real_distribution(std::log(least), std::log(most))(random)));
}

}  // namespace

std::string_view name(Kind kind) {
  constexpr std::string_view kNames[PoolTrouble::kKinds] = {
      "nothing",       "kill-at-statement", "kill-at-take", "kill-at-put", "stop",
      "cut-postgres",  "cut-clients",       "cut-s3",       "fail-over",   "s3",
      "lose-postgres", "lose-clients",      "lose-s3"};
  return kNames[static_cast<int>(kind)];
}

bool takes_filter(Kind kind) {
  return kind == Kind::kLosePostgres || kind == Kind::kLoseClients || kind == Kind::kLoseS3;
}

std::string describe(const PoolTrouble& trouble) {
  std::string text(name(trouble.kind));
  if (trouble.kind == Kind::kKillAtStatement)
    text += fmt::format(" {} '{}', number {}", trouble.point.after ? "after" : "before",
                        trouble.point.statement, trouble.point.skip + 1);
  if (trouble.kind == Kind::kKillAtTake || trouble.kind == Kind::kKillAtPut)
    text += trouble.point.after ? ", after" : ", before";
  if (trouble.wire != TcpProxy::Mode::kForward)
    text += fmt::format(", {}", TcpProxy::name(trouble.wire));
  if (trouble.lost != PacketFilter::Cut::kNone)
    text += fmt::format(", {}", PacketFilter::name(trouble.lost));
  if (trouble.kind == Kind::kS3) text += fmt::format(", {}", SmallS3::name(trouble.s3));
  if (trouble.after_ms > 0) text += fmt::format(", after {} ms", trouble.after_ms);
  if (trouble.for_ms > 0) text += fmt::format(", for {} ms", trouble.for_ms);
  return text;
}

PoolTrouble draw(Kind kind, int round, std::mt19937_64& random) {
  PoolTrouble trouble;
  trouble.kind = kind;
  trouble.point.after = round % 2 == 1;
  if (kind == Kind::kKillAtStatement) {
    trouble.point.statement = kStatements[(round / 2) % kStatementCount];
    trouble.point.skip = round < 2 * kStatementCount ? 0 : between(0, 3, random);
  }
  if (kind == Kind::kStop || kind == Kind::kCutPostgres || kind == Kind::kCutClients ||
      kind == Kind::kCutS3 || kind == Kind::kFailOver || takes_filter(kind))
    trouble.after_ms = between(0, 2'000, random);
  if (kind == Kind::kStop) trouble.for_ms = by_orders(500, 60'000, random);
  if (kind == Kind::kCutPostgres || kind == Kind::kCutClients || kind == Kind::kCutS3) {
    trouble.wire = kCuts[round % 3];
    trouble.for_ms = by_orders(500, 15'000, random);
  }
  if (takes_filter(kind)) {
    trouble.lost = kLosses[round % 3];
    trouble.for_ms = by_orders(500, 15'000, random);
  }
  if (kind == Kind::kS3) {
    trouble.s3 = static_cast<SmallS3::Fault>(1 + round % (SmallS3::kFaults - 1));
    trouble.for_ms = by_orders(1'000, 8'000, random);
  }
  return trouble;
}

}  // namespace kiln::testing
