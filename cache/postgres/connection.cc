// One way to the server and back (libpq's pipeline mode):
//
//   send lazy, lazy, statement, Sync -> results in that order -> the Sync's own
//
// The first that fails aborts those after it up to the Sync; its error is the answer.
#include "cache/postgres/connection.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstReconnect{100}, kLongestReconnect{2'000};
constexpr Oid kBytea = 17, kByteaArray = 1001;

// Server-side bounds, so that nothing of ours outlives our patience there. tcp_user_timeout ends a
// connection whose packets nobody acknowledges.
constexpr char kSessionOptions[] =
    "-c statement_timeout=2s -c lock_timeout=1s -c idle_in_transaction_session_timeout=2s"
    " -c client_min_messages=warning -c search_path=kiln";

// libpq's messages are lines; ours are one sentence.
std::string one_line(const char* message) {
  std::string line = message == nullptr ? "" : message;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::ranges::replace(line, '\n', ' ');
  return line.empty() ? "PostgreSQL gave no reason" : line;
}

template <class T>
void append_big_endian(std::string& to, T value) {
  for (int shift = static_cast<int>(sizeof value) * 8 - 8; shift >= 0; shift -= 8)
    to += static_cast<char>(static_cast<uint64_t>(value) >> shift & 0xff);
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string_view view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

// The hosts and ports of a URL that names several, the `first`-th in front; empty: it names one.
// libpq goes on to the next where one is not there, and not where one accepts and then resets, as a
// proxy does whose server is away.
struct Hosts {
  std::string hosts, ports;
};
Hosts hosts_of(const std::string& url, size_t first) {
  Hosts in_order;
  char* error = nullptr;
  PQconninfoOption* const options = PQconninfoParse(url.c_str(), &error);
  PQfreemem(error);
  if (options == nullptr) return in_order;
  std::string hosts, ports;
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    const std::string_view keyword = option->keyword;
    if (option->val == nullptr) continue;
    if (keyword == "host") hosts = option->val;
    if (keyword == "port") ports = option->val;
    if (keyword == "hostaddr") hosts.clear();
  }
  PQconninfoFree(options);
  const auto rotated = [first](const std::string& list) {
    std::vector<std::string> items(1);
    for (const char c : list) c == ',' ? items.emplace_back() : items.back() += c;
    std::ranges::rotate(items, items.begin() + static_cast<std::ptrdiff_t>(first % items.size()));
    return fmt::format("{}", fmt::join(items, ","));
  };
  if (hosts.find(',') == std::string::npos) return in_order;
  return {rotated(hosts), ports.find(',') == std::string::npos ? ports : rotated(ports)};
}

}  // namespace

PgRows::PgRows(pg_result* result)
    : result_(result, [](pg_result* held) { PQclear(held); }), rows_(PQntuples(result)) {
  changed_ = std::atoll(PQcmdTuples(result));
}

std::string_view PgRows::tag() const {
  return result_ ? PQcmdStatus(result_.get()) : "";
}

std::string_view PgRows::bytes(int64_t row, int column) const {
  const int at = static_cast<int>(row);
  return {PQgetvalue(result_.get(), at, column),
          static_cast<size_t>(PQgetlength(result_.get(), at, column))};
}

int64_t PgRows::integer(int64_t row, int column) const {
  const std::string_view value = bytes(row, column);
  const uint64_t number = big_endian(value);
  if (value.size() == 2) return static_cast<int16_t>(number);
  if (value.size() == 4) return static_cast<int32_t>(number);
  return static_cast<int64_t>(number);
}

double PgRows::real(int64_t row, int column) const {
  return std::bit_cast<double>(big_endian(bytes(row, column)));
}

bool PgRows::boolean(int64_t row, int column) const {
  return bytes(row, column) == std::string_view("\1", 1);
}

Result<Digest> PgRows::digest(int64_t row, int column) const {
  const std::string_view value = bytes(row, column);
  Digest digest;
  if (value.size() != digest.bytes.size())
    return fail(Code::kCorruption, "PostgreSQL holds something else where a digest should be");
  std::ranges::copy(value, reinterpret_cast<char*>(digest.bytes.data()));
  return digest;
}

PgValues& PgValues::add(int64_t value) {
  values_.push_back({std::to_string(value), false});
  return *this;
}
PgValues& PgValues::add_real(double value) {
  Value real{"", true};
  append_big_endian(real.bytes, std::bit_cast<uint64_t>(value));
  values_.push_back(std::move(real));
  return *this;
}
PgValues& PgValues::add_text(std::string_view value) {
  values_.push_back({std::string(value), false});
  return *this;
}
PgValues& PgValues::add_bytes(std::string_view value) {
  values_.push_back({std::string(value), true});
  return *this;
}
PgValues& PgValues::add(const Digest& value) {
  return add_bytes(view(value));
}

// The binary form of an array: dimensions, has nulls, type, size, lower bound, then length and
// bytes of each.
PgValues& PgValues::add(const std::vector<Digest>& values) {
  Value array{"", true};
  append_big_endian<int32_t>(array.bytes, values.empty() ? 0 : 1);
  append_big_endian<int32_t>(array.bytes, 0);
  append_big_endian<int32_t>(array.bytes, kBytea);
  if (!values.empty()) {
    append_big_endian<int32_t>(array.bytes, static_cast<int32_t>(values.size()));
    append_big_endian<int32_t>(array.bytes, 1);
  }
  for (const Digest& value : values) {
    append_big_endian<int32_t>(array.bytes, static_cast<int32_t>(value.bytes.size()));
    array.bytes += view(value);
  }
  values_.push_back(std::move(array));
  return *this;
}

PgValues& PgValues::add(const std::vector<int64_t>& values) {
  return add_text(fmt::format("{{{}}}", fmt::join(values, ",")));
}

PgConnection::PgConnection(std::string url, std::string name)
    : url_(std::move(url)), name_(std::move(name)) {}

PgConnection::~PgConnection() {
  disconnect();
}

PgConnection::PgConnection(PgConnection&& other) noexcept
    : url_(std::move(other.url_)),
      name_(std::move(other.name_)),
      connection_(std::exchange(other.connection_, nullptr)),
      lazy_(std::move(other.lazy_)),
      patience_(other.patience_),
      backoff_(other.backoff_),
      not_before_(other.not_before_),
      last_error_(std::move(other.last_error_)),
      failed_connects_(other.failed_connects_) {}

PgConnection& PgConnection::operator=(PgConnection&& other) noexcept {
  std::swap(url_, other.url_);
  std::swap(name_, other.name_);
  std::swap(connection_, other.connection_);
  std::swap(lazy_, other.lazy_);
  std::swap(patience_, other.patience_);
  std::swap(backoff_, other.backoff_);
  std::swap(not_before_, other.not_before_);
  std::swap(last_error_, other.last_error_);
  std::swap(failed_connects_, other.failed_connects_);
  return *this;
}

void PgConnection::disconnect() {
  if (connection_ != nullptr) PQfinish(connection_);
  connection_ = nullptr;
  lazy_.clear();
}

tl::unexpected<Error> PgConnection::broken(const std::string& why) {
  disconnect();
  backoff_ = backoff_.count() == 0 ? kFirstReconnect : std::min(backoff_ * 2, kLongestReconnect);
  not_before_ = Clock::now() + backoff_;
  last_error_ = why;
  return fail(Code::kUnavailable, "PostgreSQL: " + why);
}

Status PgConnection::connect() {
  if (connection_ != nullptr) return {};
  if (Clock::now() < not_before_) return fail(Code::kUnavailable, "PostgreSQL: " + last_error_);
  // The URL wins: it is expanded last.
  const Hosts in_order = hosts_of(url_, failed_connects_);
  const char* const several = in_order.hosts.empty() ? nullptr : "host";
  const char* const names[] = {"connect_timeout",
                               "tcp_user_timeout",
                               "keepalives_idle",
                               "application_name",
                               "options",
                               "target_session_attrs",
                               "dbname",
                               several,
                               "port",
                               nullptr};
  const char* const values[] = {"2",
                                "3000",
                                "5",
                                name_.c_str(),
                                kSessionOptions,
                                "read-write",
                                url_.c_str(),
                                in_order.hosts.c_str(),
                                in_order.ports.c_str(),
                                nullptr};
  pg_conn* const connection = PQconnectdbParams(names, values, /*expand_dbname=*/1);
  if (connection == nullptr) return broken("out of memory");
  connection_ = connection;
  if (PQstatus(connection) != CONNECTION_OK) {
    ++failed_connects_;
    return broken(one_line(PQerrorMessage(connection)));
  }
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);  // else stderr has them
  if (PQsetnonblocking(connection, 1) != 0 || PQenterPipelineMode(connection) != 1)
    return broken(one_line(PQerrorMessage(connection)));
  backoff_ = {};
  return {};
}

Status PgConnection::send(const Statement& statement) {
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
  for (const PgValues::Value& value : statement.values.values_) {
    values.push_back(value.bytes.c_str());
    lengths.push_back(static_cast<int>(value.bytes.size()));
    formats.push_back(value.is_binary ? 1 : 0);
  }
  if (PQsendQueryParams(connection_, statement.sql.c_str(), static_cast<int>(values.size()),
                        nullptr, values.data(), lengths.data(), formats.data(), 1) != 1)
    return broken(one_line(PQerrorMessage(connection_)));
  return {};
}

// Waits for either, since a server that answers much may not read on before we do.
Status PgConnection::flush(Clock::time_point until) {
  for (;;) {
    const int left = PQflush(connection_);
    if (left == 0) return {};
    if (left < 0) return broken(one_line(PQerrorMessage(connection_)));
    pollfd socket{PQsocket(connection_), POLLIN | POLLOUT, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const int ready = ms.count() > 0 ? ::poll(&socket, 1, static_cast<int>(ms.count())) : 0;
    if (ready == 0) return broken("the server takes no more");
    if (ready < 0 && errno != EINTR) return broken("poll failed");
    if ((socket.revents & POLLIN) != 0 && PQconsumeInput(connection_) != 1)
      return broken(one_line(PQerrorMessage(connection_)));
  }
}

Status PgConnection::wait_until_readable(Clock::time_point until) {
  while (PQisBusy(connection_) != 0) {
    pollfd socket{PQsocket(connection_), POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const int ready = ms.count() > 0 ? ::poll(&socket, 1, static_cast<int>(ms.count())) : 0;
    if (ready == 0)
      return broken(
          fmt::format("no answer within {} ms; the connection was ended", patience_.count()));
    if (ready < 0 && errno != EINTR) return broken("poll failed");
    if (PQconsumeInput(connection_) != 1) return broken(one_line(PQerrorMessage(connection_)));
  }
  return {};
}

// Each statement's results end with a null one.
Result<PgRows> PgConnection::receive(const std::vector<Statement>& statements) {
  const Clock::time_point until = Clock::now() + patience_ + kPatienceEach * statements.size();
  PgRows last;
  std::string error;
  for (size_t done = 0; done <= statements.size();) {
    TRY_STATUS(wait_until_readable(until));
    PGresult* const result = PQgetResult(connection_);
    if (result == nullptr) {
      ++done;
      continue;
    }
    PgRows rows(result);
    switch (PQresultStatus(result)) {
      case PGRES_PIPELINE_SYNC:  // no null follows it
        done = statements.size() + 1;
        break;
      case PGRES_COMMAND_OK:
      case PGRES_TUPLES_OK:
        if (const int64_t wanted = statements[done].rows;
            wanted != kAnyRows && rows.changed() != wanted && error.empty())
          error =
              fmt::format("{} rows were meant to be found, and {} were", wanted, rows.changed());
        last = std::move(rows);
        break;
      case PGRES_PIPELINE_ABORTED:
        break;
      default:
        if (error.empty()) error = one_line(PQresultErrorMessage(result));
    }
    if (PQstatus(connection_) != CONNECTION_OK)
      return broken(error.empty() ? one_line(PQerrorMessage(connection_)) : error);
  }
  if (!error.empty()) return fail(Code::kUnavailable, "PostgreSQL: " + error);
  return last;
}

Result<PgRows> PgConnection::run(const char* sql, const PgValues& values) {
  std::vector<Statement> statements = std::exchange(lazy_, {});
  statements.push_back({sql, values, kAnyRows});
  TRY_STATUS(connect());
  for (const Statement& statement : statements) TRY_STATUS(send(statement));
  if (PQpipelineSync(connection_) != 1) return broken(one_line(PQerrorMessage(connection_)));
  TRY_STATUS(flush(Clock::now() + patience_ + kPatienceEach * statements.size()));
  return receive(statements);
}

}  // namespace kiln
