// `kiln tune-log`: a store's tuning records as JSON lines or CSV (cache/tune_log.h), page by page from
// its directory or from the coordinator that serves it.
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "cache/index.h"
#include "cache/tune_log.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Page {
  std::vector<Json> rows;
  int64_t last_id = 0;  // 0: there are no more
  int64_t damaged = 0;
};
using ReadPage = std::function<Result<Page>(const RecordQuery&)>;

// RFC 4180; nothing where it is not known.
std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const Json& row) {
  std::string line;
  for (const TuneLogColumn& column : tune_log_columns())
    line += (line.empty() ? "" : ",") + csv_field(row.value(std::string(column.name), Json()));
  return line;
}

std::string csv_names() {
  std::string line;
  for (const TuneLogColumn& column : tune_log_columns())
    line += fmt::format("{}{}", line.empty() ? "" : ",", column.name);
  return line;
}

void print_columns() {
  for (const TuneLogColumn& column : tune_log_columns())
    std::fputs(fmt::format("{:<16}  {:<6}  {}\n", column.name, column.type, column.meaning).c_str(),
               stdout);
}

Result<RecordQuery> query_of(const Options& options) {
  RecordQuery wanted;
  wanted.worker = options.worker;
  wanted.template_name = options.template_name;
  TRY(wanted.program, parse_key(options.program_key, "program"));
  TRY(wanted.kernel, parse_key(options.kernel_key, "kernel"));
  TRY(wanted.since_ms, parse_since(options.since));
  return wanted;
}

Result<ReadPage> pages_of_directory(const Options& options) {
  TRY(const Path file, index_file(options, ", or the service with --coordinator"));
  TRY(CacheIndex opened, CacheIndex::open_for_reading(file));
  const auto index = std::make_shared<CacheIndex>(std::move(opened));
  return ReadPage([index](const RecordQuery& wanted) -> Result<Page> {
    TRY(const RecordList list, index->list_records(wanted));
    Page page{{}, list.last_id, list.damaged};
    for (const ListedRecord& each : list.records) page.rows.push_back(tune_log_row(each));
    return page;
  });
}

Result<ReadPage> pages_of_service(const Options& options) {
  TRY(const std::shared_ptr<Remote> service, service_of(options));
  return ReadPage([service](const RecordQuery& wanted) -> Result<Page> {
    AdminRequest request;
    request.kind = AdminRequest::Kind::kTuneLog;
    request.amount = wanted.after;
    request.worker = wanted.worker;
    request.key = wanted.program;
    request.kernel = wanted.kernel;
    request.since_ms = wanted.since_ms;
    request.template_name = wanted.template_name;
    TRY(const Json answer, ask_admin(*service, std::move(request), std::chrono::minutes(1)));
    return Page{answer.value("records", std::vector<Json>()), answer.value("last_id", int64_t{0}),
                answer.value("damaged", int64_t{0})};
  });
}

Status print_log(const Options& options) {
  TRY(RecordQuery wanted, query_of(options));
  TRY(const ReadPage read,
      options.coordinator.empty() ? pages_of_directory(options) : pages_of_service(options));
  if (options.csv) std::printf("%s\r\n", csv_names().c_str());
  size_t printed = 0;
  int64_t damaged = 0;
  for (;;) {
    TRY(const Page page, read(wanted));
    for (const Json& row : page.rows) {
      // A compiler's words need not be UTF-8.
      const std::string line =
          options.csv ? csv_line(row) + "\r\n"
                      : row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      if (std::fputs(line.c_str(), stdout) == EOF)
        return fail(Code::kInvalidArgument, "stdout takes no more");
      ++printed;
    }
    damaged += page.damaged;
    if (page.last_id == 0) break;
    wanted.after = page.last_id;
  }
  if (printed == 0)
    std::fputs("kiln: no record fits: without filters, tune-log prints all there are\n", stderr);
  if (damaged > 0)
    std::fputs(
        fmt::format("kiln: {} damaged records were left out; `kiln cache verify` counts them\n",
                    damaged)
            .c_str(),
        stderr);
  return {};
}

}  // namespace

int tune_log_command(const Options& options) {
  if (options.columns) {
    print_columns();
    return kDone;
  }
  const Status done = print_log(options);
  if (done) return kDone;
  print_error(options.coordinator.empty() ? options.data_dir : "", done.error());
  return exit_code_of_store(done.error());
}

}  // namespace kiln::cli
