#include "cache/objects/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kErrorBodyBytes = 64 << 10, kHeaderBytes = 64 << 10;
constexpr long kOk = 200;

void prepare_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// A request that a connection works on.
struct Transfer {
  OutgoingRequest request;
  Then<HttpResponse> done;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  HttpResponse response{};
  size_t sent = 0, header_bytes = 0;
  bool too_large = false;
  char error[CURL_ERROR_SIZE] = {};
};

size_t on_header(char* data, size_t, size_t size, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size);
  if ((transfer.header_bytes += size) > kHeaderBytes) return 0;
  if (line.starts_with("HTTP/")) transfer.response.headers.clear();  // after a 100 Continue
  if (const size_t colon = line.find(':'); colon != std::string_view::npos)
    transfer.response.headers[lower_case(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  return size;
}

// As much of an error is kept as is worth reading; the rest is read past, so that the connection
// stays good, up to the same bound as of a good body.
size_t on_body(char* data, size_t, size_t size, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  std::string& body = transfer.response.body;
  if (status != kOk) {
    body.append(data, std::min(size, kErrorBodyBytes - std::min(kErrorBodyBytes, body.size())));
    return body.size() < kErrorBodyBytes ? size : 0;
  }
  if (body.size() + size > static_cast<size_t>(transfer.request.max_body_bytes)) {
    transfer.too_large = true;
    return 0;
  }
  body.append(data, size);
  return size;
}

size_t on_send(char* buffer, size_t, size_t room, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::string& body = *transfer.request.body;
  const size_t size = std::min(room, body.size() - transfer.sent);
  std::copy_n(body.data() + transfer.sent, size, buffer);
  transfer.sent += size;
  return size;
}

// libcurl sends a body again when a kept connection turns out to be closed.
int on_rewind(void* context, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(context)->sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

Code code_of(CURLcode result) {
  switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
      return Code::kDeadlineExceeded;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Code::kPermissionDenied;
    case CURLE_URL_MALFORMAT:
      return Code::kInvalidArgument;
    default:
      return Code::kUnavailable;
  }
}

Error away() {
  return {Code::kUnavailable, "the store is being closed", 0};
}

}  // namespace

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

// The thread owns everything but what mu_ guards.
struct HttpClient::Impl {
  explicit Impl(const Options& given) : options(given) {
    prepare_curl();
    multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(options.connections));
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mu);
      stopping = true;
    }
    curl_multi_wakeup(multi);
    thread.join();
    for (CURL* easy : idle) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }

  // False: it was refused, since the client goes.
  bool add(std::unique_ptr<Transfer>& transfer) {
    const std::scoped_lock lock(mu);
    if (stopped) return false;
    waiting.push_back(std::move(transfer));
    return true;
  }

  void run() {
    for (bool last = false; !last;) {
      {
        const std::scoped_lock lock(mu);
        last = stopping;
      }
      if (last) break;
      start_waiting();
      int running = 0;
      curl_multi_perform(multi, &running);
      finish_done();
      const auto pause = run_timers();
      start_waiting();  // in the places of those that are done
      curl_multi_poll(multi, nullptr, 0, static_cast<int>(pause.count()), nullptr);
    }
    end_all();
  }

  void start_waiting() {
    for (;;) {
      std::unique_ptr<Transfer> next;
      {
        const std::scoped_lock lock(mu);
        if (waiting.empty() || active.size() >= static_cast<size_t>(options.connections)) return;
        next = std::move(waiting.front());
        waiting.pop_front();
      }
      start(std::move(next));
    }
  }

  void start(std::unique_ptr<Transfer> transfer) {
    if (idle.empty()) {
      transfer->easy = curl_easy_init();
    } else {
      transfer->easy = idle.back();
      idle.pop_back();
      curl_easy_reset(transfer->easy);
    }
    set_options(*transfer);
    active.push_back(std::move(transfer));
    const auto place = std::prev(active.end());
    curl_easy_setopt((*place)->easy, CURLOPT_PRIVATE, place->get());
    curl_multi_add_handle(multi, (*place)->easy);
  }

  void set_options(Transfer& transfer) {
    CURL* const easy = transfer.easy;
    const OutgoingRequest& request = transfer.request;
    const auto set = [easy](CURLoption option, auto value) {
      curl_easy_setopt(easy, option, value);
    };
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");  // else libcurl reads the environment
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
    set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(request.timeout.count())));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME,
        std::max(1L, static_cast<long>((options.stall_timeout.count() + 999) / 1000)));
    if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
    for (const auto& [name, value] : request.headers) {
      const std::string line = value.empty() ? name + ";" : fmt::format("{}: {}", name, value);
      transfer.headers = curl_slist_append(transfer.headers, line.c_str());
    }
    // libcurl's own: it would wait for leave to send, and name a type that is not signed.
    transfer.headers = curl_slist_append(transfer.headers, "expect:");
    transfer.headers = curl_slist_append(transfer.headers, "content-type:");
    set(CURLOPT_HTTPHEADER, transfer.headers);
    set(CURLOPT_ERRORBUFFER, transfer.error);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, &transfer);
    if (request.body == nullptr) return;
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body->size()));
    set(CURLOPT_READFUNCTION, on_send);
    set(CURLOPT_READDATA, &transfer);
    set(CURLOPT_SEEKFUNCTION, on_rewind);
    set(CURLOPT_SEEKDATA, &transfer);
  }

  void finish_done() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode result = message->data.result;  // the message goes with its handle
      Transfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      const auto place = std::ranges::find(active, transfer, &std::unique_ptr<Transfer>::get);
      std::unique_ptr<Transfer> finished = std::move(*place);
      active.erase(place);
      answer(*finished, result);
    }
  }

  void answer(Transfer& transfer, CURLcode result) {
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    release(transfer);
    transfer.response.status = static_cast<int>(status);
    if (transfer.too_large)
      return transfer.done(
          fail(Code::kUnsupported, "the answer is larger than " +
                                       std::to_string(transfer.request.max_body_bytes) + " bytes"));
    // An error that goes on for longer than anybody reads is still that error.
    const bool long_error = result == CURLE_WRITE_ERROR && status != kOk && status != 0;
    if (result == CURLE_OK || long_error) return transfer.done(std::move(transfer.response));
    const std::string why = transfer.error[0] != '\0' ? transfer.error : curl_easy_strerror(result);
    transfer.done(fail(code_of(result), why));
  }

  void release(Transfer& transfer) {
    curl_multi_remove_handle(multi, transfer.easy);
    curl_slist_free_all(std::exchange(transfer.headers, nullptr));
    idle.push_back(std::exchange(transfer.easy, nullptr));
  }

  // How long until the next one; an hour when there is none.
  std::chrono::milliseconds run_timers() {
    for (;;) {
      Then<void> due;
      {
        const std::scoped_lock lock(mu);
        if (timers.empty()) return std::chrono::hours(1);
        const auto first = timers.begin();
        if (first->first > Clock::now())
          return std::chrono::ceil<std::chrono::milliseconds>(first->first - Clock::now());
        due = std::move(first->second);
        timers.erase(first);
      }
      due({});
    }
  }

  // Callbacks may ask for more, and hear the same, until nothing is left.
  void end_all() {
    for (auto& transfer : active) {
      release(*transfer);
      transfer->done(fail(away()));
    }
    active.clear();
    for (;;) {
      std::deque<std::unique_ptr<Transfer>> transfers;
      std::multimap<Clock::time_point, Then<void>> later;
      {
        const std::scoped_lock lock(mu);
        transfers.swap(waiting);
        later.swap(timers);
        stopped = transfers.empty() && later.empty();
        if (stopped) return;
      }
      for (auto& transfer : transfers) transfer->done(fail(away()));
      for (auto& [when, done] : later) done(fail(away()));
    }
  }

  const Options options;
  CURLM* multi = nullptr;
  std::list<std::unique_ptr<Transfer>> active;
  std::vector<CURL*> idle;

  std::mutex mu;
  // Guarded by mu.
  std::deque<std::unique_ptr<Transfer>> waiting;
  std::multimap<Clock::time_point, Then<void>> timers;
  bool stopping = false, stopped = false;

  std::thread thread;  // last: starts when the rest stands
};

HttpClient::HttpClient(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
HttpClient::~HttpClient() = default;

void HttpClient::ask(OutgoingRequest request, Then<HttpResponse> done) {
  auto transfer = std::make_unique<Transfer>();
  transfer->request = std::move(request);
  transfer->done = std::move(done);
  if (!impl_->add(transfer)) return transfer->done(fail(away()));
  curl_multi_wakeup(impl_->multi);
}

void HttpClient::after(std::chrono::milliseconds delay, Then<void> done) {
  {
    const std::scoped_lock lock(impl_->mu);
    if (!impl_->stopped) {
      impl_->timers.emplace(Clock::now() + delay, std::exchange(done, nullptr));
    }
  }
  if (done) return done(fail(away()));
  curl_multi_wakeup(impl_->multi);
}

}  // namespace kiln
