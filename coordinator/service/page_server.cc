#include "coordinator/service/page_server.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <chrono>
#include <future>

#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/page/blocks.h"
#include "compiler_core/page/values.h"
#include "coordinator/page/frame.h"
#include "coordinator/page/kernel_parts.h"
#include "coordinator/page/views.h"
#include "schema/keys/page_token.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using page::Document;

constexpr char kVersion[] = "kiln 0.1.0";
constexpr auto kFresh = std::chrono::milliseconds(500);  // a snapshot serves so long
constexpr auto kTellEvery = std::chrono::seconds(2);
constexpr auto kBeatEvery = std::chrono::seconds(20);
constexpr int64_t kCookieS = 12 * 3600;
// Bounds of the kernels whose workloads are read for a program's page: how many, and how much text.
constexpr size_t kMostWorkloads = 100, kMostWorkloadBytes = 1 << 20;

std::string random_secret() {
  std::string secret(32, '\0');
  CHECK(getrandom(secret.data(), secret.size(), 0) == static_cast<ssize_t>(secret.size()),
        "the kernel has randomness");
  return secret;
}

// These headers keep a page from doing anything but what it says, whatever gets into it.
HttpAnswer guarded(HttpAnswer answer) {
  answer.headers.emplace_back("Content-Security-Policy",
                              "default-src 'self'; base-uri 'none'; form-action 'self'; "
                              "frame-ancestors 'none'");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  answer.headers.emplace_back("X-Frame-Options", "DENY");
  // With no-referrer, browsers would say nothing of where a form's request comes from either.
  answer.headers.emplace_back("Referrer-Policy", "same-origin");
  answer.headers.emplace_back("Cache-Control", "no-store");
  return answer;
}

HttpAnswer asset(std::string_view body, const char* type) {
  HttpAnswer answer{200, type, std::string(body)};
  answer.headers = {{"Cache-Control", "max-age=60"}, {"X-Content-Type-Options", "nosniff"}};
  return answer;
}

std::optional<HttpAnswer> asset_at(const std::string& path) {
  if (path == "/page.css") return asset(page::style(), "text/css; charset=utf-8");
  if (path == "/page.js") return asset(page::script(), "text/javascript; charset=utf-8");
  if (path == "/page.svg") return asset(page::icon(), "image/svg+xml");
  return std::nullopt;
}

HttpAnswer see_other(std::string where) {
  HttpAnswer answer = plain_answer(303, "see " + where);
  answer.headers = {{"Location", std::move(where)}};
  return guarded(std::move(answer));
}

HttpAnswer stream() {
  HttpAnswer answer{200, "text/event-stream", "retry: 5000\n\n"};
  answer.stream = true;
  return guarded(std::move(answer));
}

// Paths alone, so that no form leads to another site.
std::string own_path(const std::string& path) {
  return path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/\\") &&
                 path.find_first_of("\r\n") == std::string::npos
             ? path
             : "/";
}

// A text that changes when the data of the views does.
std::string state_of(const page::Snapshot& now) {
  const Stats& s = now.status.stats;
  std::string state = fmt::format("{} {} {} {} {} {} {} {} {}", s.hits, s.joined, s.misses,
                                  s.flights_open, s.candidates_measured, s.candidates_queued,
                                  now.totals.programs, now.acts, now.misses.size());
  for (const WorkerStats& worker : s.workers)
    state += fmt::format(" {}{}", worker.leases, worker.state.empty() ? 's' : worker.state[0]);
  return state;
}

// The request that a form's fields describe.
Result<AdminRequest> act_of(const page::Query& form) {
  const std::string& kind = form.get("kind");
  AdminRequest request;
  if (kind == "drain") {
    request.kind = AdminRequest::Kind::kDrain;
    // As the page writes a name that HTML would not carry as it is.
    const std::string& encoded = form.get("worker*");
    request.worker = encoded.empty() ? form.get("worker") : page::decoded(encoded);
    return request;
  }
  if (kind == "pin")
    request.kind = AdminRequest::Kind::kPin;
  else if (kind == "unpin")
    request.kind = AdminRequest::Kind::kUnpin;
  else if (kind == "forget")
    request.kind = AdminRequest::Kind::kForget;
  else if (kind == "cancel")
    request.kind = AdminRequest::Kind::kCancelDetached;
  else
    return fail(Code::kInvalidArgument, "this page knows no such act");
  TRY(request.key, Digest::parse(form.get("program")));
  return request;
}

}  // namespace

PageServer::PageServer(PageSource& source, std::function<size_t()> watched,
                       std::function<void(std::string)> publish)
    : source_(source),
      watched_(std::move(watched)),
      publish_(std::move(publish)),
      secret_(random_secret()),
      thread_([this] { run(); }) {}

PageServer::~PageServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PageServer::handle(HttpRequest request, HttpPort::Reply reply) {
  if (auto found = asset_at(request.path)) return reply(*std::move(found));
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back({std::move(request), std::move(reply)});
      changed_.notify_one();
      return;
    }
  }
  HttpAnswer full = plain_answer(503, "too many ask for this page at once; try again");
  full.headers = {{"Retry-After", "1"}};
  reply(std::move(full));
}

void PageServer::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTellEvery, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    if (waiting_.empty()) {
      lock.unlock();
      tell_viewers();
      continue;
    }
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next.reply(answer(next.request));
    if (Clock::now() - told_ > kTellEvery) tell_viewers();
  }
}

// A beat now and then keeps proxies from ending a stream that says nothing.
void PageServer::tell_viewers() {
  if (watched_() == 0) return;
  const auto now = snapshot();
  if (now == nullptr) return;
  std::string state = state_of(*now);
  if (state != last_told_) {
    publish_("event: change\ndata: 1\n\n");
    last_told_ = std::move(state);
    told_ = Clock::now();
  } else if (Clock::now() - told_ > kBeatEvery) {
    publish_(": still here\n\n");
    told_ = Clock::now();
  }
}

std::shared_ptr<const page::Snapshot> PageServer::snapshot() {
  if (latest_ != nullptr && Clock::now() - taken_ < kFresh) return latest_;
  auto taken = source_.snapshot();
  if (!taken) return nullptr;
  latest_ = std::make_shared<const page::Snapshot>(*std::move(taken));
  taken_ = Clock::now();
  return latest_;
}

HttpAnswer PageServer::answer(const HttpRequest& request) {
  if (request.path == "/sign-in") return sign_in(request);
  const auto viewer = page::viewer_of(request, source_.keyring(), unix_ms() / 1000);
  if (!viewer) return refused(request, viewer.error());
  if (request.is_get() && request.path == "/events") return stream();
  if (request.is_get()) return view(request, *viewer, page::Query::parse(request.query));
  if (request.path == "/act") return act(request, *viewer);
  if (request.path == "/sign-out" && page::is_same_origin(request)) {
    HttpAnswer answer = see_other("/sign-in");
    answer.headers.emplace_back(
        "Set-Cookie",
        fmt::format("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", page::kCookie));
    return answer;
  }
  return guarded(plain_answer(405, "only forms of this page are sent here"));
}

HttpAnswer PageServer::view(const HttpRequest& request, const page::Viewer& viewer,
                            page::Query query) {
  const auto latest = snapshot();
  if (latest == nullptr)
    return guarded(plain_answer(503, "the coordinator's loop does not answer; see /healthz"));
  page::Frame frame;
  frame.path = request.path;
  const bool wants_json = query.wants_json();
  query.set("format", "");
  frame.query = query;
  frame.who = viewer.user.name;
  frame.signed_in = viewer.signed_in;
  frame.may_act = covers(viewer.user.grant, Grant::kAdmin);
  if (frame.may_act) frame.token = act_token(viewer);
  frame.version = kVersion;
  frame.service = source_.endpoint();
  frame.now_ms = latest->now_ms;
  auto shown = *latest;  // lists are copied: some thousand short strings
  shown.sees_details = frame.may_act;
  if (!covers(viewer.user.grant, Grant::kSubmit) && viewer.signed_in)
    shown.status.stats.detached.clear();
  auto made = document(request.path, shown, query);
  if (!made) {
    const Error why = made.error();
    made = page::not_here("Not answered", why.message);
    if (why.code == Code::kUnavailable || why.code == Code::kCorruption) made->status = 503;
  }
  HttpAnswer answer{made->status, "text/html; charset=utf-8", {}};
  if (wants_json) answer.content_type = "application/json";
  answer.body = wants_json ? page::to_json(*made) : page::to_html(*made, frame);
  return guarded(std::move(answer));
}

Result<Document> PageServer::document(const std::string& path, const page::Snapshot& now,
                                      const page::Query& query) {
  constexpr std::string_view kProgram = "/program/", kKernel = "/kernel/";
  if (path == "/") return page::overview(now);
  if (path == "/tuning") return page::tuning(now, query);
  if (path == "/workers") return page::workers(now, query);
  if (path == "/misses") return page::misses(now, query);
  if (path == "/audit") {
    return page::audit(now, latest_acts(), query);
  }
  if (path == "/cache") {
    TRY(const ProgramList listed, source_.store().list_programs(page::program_query(query)));
    return page::cache(now, listed, query);
  }
  if (path.starts_with(kProgram)) {
    TRY(const Digest key, Digest::parse(path.substr(kProgram.size())));
    return page::program(now, program_facts(key, now), query);
  }
  if (path.starts_with(kKernel)) {
    page::KernelFacts facts;
    TRY(facts.key, Digest::parse(path.substr(kKernel.size())));
    if (auto stored = source_.store().listed_kernel(facts.key)) facts.stored = *std::move(stored);
    TRY(facts.records, source_.store().records(facts.key));
    return page::kernel(now, facts, query);
  }
  return fail(Code::kNotFound, "this page has no such view");
}

Result<std::vector<AdminAct>> PageServer::latest_acts() {
  constexpr int64_t kMost = 1'000;
  std::promise<Result<std::vector<AdminAct>>> read;
  source_.store().list_acts(INT64_MAX, kMost,
                            [&read](auto acts) { read.set_value(std::move(acts)); });
  return read.get_future().get();
}

page::ProgramFacts PageServer::program_facts(const Digest& key, const page::Snapshot& now) {
  page::ProgramFacts facts{key};
  if (auto stored = source_.store().listed_program(key)) {
    if (auto program = program_from_json(stored->manifest)) {
      facts.program = *std::move(program);
      facts.stored = *std::move(stored);
      if (now.sees_details) facts.workloads = workloads_of(*facts.program);
      return facts;
    }
  }
  std::string graph;  // a search through the manifests, for what is not there alone
  for (const Miss& miss : now.misses)
    if (miss.program == key) graph = miss.graph.hex();
  if (graph.empty()) return facts;
  ProgramQuery same;
  same.text = std::move(graph);
  if (auto relatives = source_.store().list_programs(same))
    facts.relatives = std::move(relatives->programs);
  return facts;
}

// By kernel. A program of many kernels has those of the first.
std::map<Digest, page::WorkloadFacts> PageServer::workloads_of(const Program& program) {
  std::map<Digest, page::WorkloadFacts> workloads;
  size_t bytes = 0;
  for (const ProgramKernel& kernel : program.kernels) {
    if (workloads.size() == kMostWorkloads || bytes > kMostWorkloadBytes) break;
    if (workloads.contains(kernel.key)) continue;
    const auto stored = source_.store().listed_kernel(kernel.key);
    if (!stored) continue;
    bytes += stored->workload_text.size();
    workloads.emplace(kernel.key, page::workload_facts(*stored));
  }
  return workloads;
}

std::string PageServer::act_token(const page::Viewer& viewer) const {
  return Hasher("kiln.page_act.v1").add(secret_).add(viewer.identity).finish().hex();
}

HttpAnswer PageServer::act(const HttpRequest& request, const page::Viewer& viewer) {
  if (!covers(viewer.user.grant, Grant::kAdmin))
    return guarded(plain_answer(
        403, "acts take a token of a key with the role admin: `kiln page-token --role admin`"));
  const page::Query form = page::Query::parse(request.body);
  if (!page::is_same_origin(request) || form.get("token") != act_token(viewer))
    return guarded(plain_answer(403, "this did not come from the page as it is now; open it anew"));
  auto asked = act_of(form);
  if (!asked) return guarded(plain_answer(400, asked.error().message));
  const Status done = source_.act(*std::move(asked), viewer.user.name);
  latest_ = nullptr;  // shows what came of it
  if (!done) return guarded(plain_answer(503, done.error().message));
  return see_other(own_path(form.get("back")));
}

HttpAnswer PageServer::sign_in(const HttpRequest& request) {
  if (request.is_get())
    return refused(request, {Code::kPermissionDenied, "a token of `kiln page-token` signs in", 0});
  const page::Query form = page::Query::parse(request.body);
  const Keyring* ring = source_.keyring();
  if (ring == nullptr || !page::is_same_origin(request))
    return refused(request, {Code::kPermissionDenied, "nobody signs in here with a token", 0});
  std::string token = form.get("token");
  std::erase_if(token, [](char c) { return c <= ' ' || c == ';' || c == ','; });
  if (const auto user = check_page_token(token, *ring, unix_ms() / 1000); !user)
    return refused(request, user.error());
  HttpAnswer answer = see_other("/");
  answer.headers.emplace_back("Set-Cookie",
                              fmt::format("{}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict",
                                          page::kCookie, token, kCookieS));
  return answer;
}

HttpAnswer PageServer::refused(const HttpRequest& request, const Error& why) const {
  if (page::Query::parse(request.query).wants_json() || request.path == "/events") {
    HttpAnswer answer = plain_answer(401, why.message);
    answer.headers = {{"WWW-Authenticate", "Bearer"}};
    return guarded(std::move(answer));
  }
  return guarded({401, "text/html; charset=utf-8", page::sign_in_page(why.message)});
}

}  // namespace kiln
