#include "schema/tracing/otlp/span_exporter.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "schema/tracing/otlp/otlp_json.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTries = 5;

size_t ignore_body(char*, size_t, size_t size, void*) {
  return size;
}

bool comes_again(CURLcode result, long status) {
  if (result != CURLE_OK) return result != CURLE_URL_MALFORMAT;
  return status == 429 || (status >= 502 && status <= 504);
}

}  // namespace

struct SpanExporter::Impl {
  Impl(TraceSettings given, Limits bounds) : settings(std::move(given)), limits(bounds) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    easy = curl_easy_init();
    headers = curl_slist_append(headers, "content-type: application/json");
    headers = curl_slist_append(headers, "expect:");  // else libcurl waits for leave to send
    for (const auto& [name, value] : settings.headers)
      headers = curl_slist_append(headers, fmt::format("{}: {}", name, value).c_str());
    prepare();
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mu);
      give_up_at = Clock::now() + limits.at_end;
      stopping = true;
    }
    changed.notify_one();
    thread.join();
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }

  // Nothing is taken on trust: no redirect, no cookie, no proxy of the environment's.
  void prepare() {
    const auto set = [this](CURLoption option, auto value) {
      curl_easy_setopt(easy, option, value);
    };
    set(CURLOPT_URL, settings.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(settings.timeout.count()));
    set(CURLOPT_WRITEFUNCTION, ignore_body);
    set(CURLOPT_NOPROGRESS, 0L);  // asks `is_too_late` several times a second
    set(CURLOPT_XFERINFOFUNCTION, is_too_late);
    set(CURLOPT_XFERINFODATA, this);
  }

  static int is_too_late(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Impl*>(context)->gave_up() ? 1 : 0;
  }
  bool gave_up() {
    const std::scoped_lock lock(mu);
    return stopping && Clock::now() >= give_up_at;
  }

  void add(Span span) {
    bool is_batch = false;
    {
      const std::scoped_lock lock(mu);
      if (queue.size() >= limits.queued || stopping) {
        ++counted.dropped;
        return;
      }
      queue.push_back(std::move(span));
      is_batch = queue.size() == limits.batch || queue.size() == 1;
    }
    if (is_batch) changed.notify_one();
  }

  void run() {
    for (std::vector<Span> batch = next_batch(); !batch.empty(); batch = next_batch()) {
      const bool taken = send(batch);
      const std::scoped_lock lock(mu);
      (taken ? counted.exported : counted.dropped) += static_cast<int64_t>(batch.size());
    }
  }

  // Empty: it is over, and nothing is queued.
  std::vector<Span> next_batch() {
    std::unique_lock lock(mu);
    changed.wait(lock, [this] { return stopping || !queue.empty(); });
    changed.wait_for(lock, limits.delay,
                     [this] { return stopping || queue.size() >= limits.batch; });
    const auto end = queue.begin() + static_cast<int64_t>(std::min(queue.size(), limits.batch));
    std::vector<Span> batch(std::move_iterator(queue.begin()), std::move_iterator(end));
    queue.erase(queue.begin(), end);
    return batch;
  }

  bool send(const std::vector<Span>& batch) {
    const std::string body = otlp_json(settings.resource, batch);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    milliseconds pause = limits.first_pause;
    for (int tried = 1; !gave_up(); ++tried) {
      const CURLcode result = curl_easy_perform(easy);
      long status = 0;
      curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
      if (result == CURLE_OK && status / 100 == 2) return true;
      if (tried == kTries || !comes_again(result, status)) return false;
      std::unique_lock lock(mu);
      if (stopping) return false;  // one try each is all that there is time for
      changed.wait_for(lock, pause, [this] { return stopping; });
      pause *= 2;
    }
    return false;
  }

  const TraceSettings settings;
  const Limits limits;
  CURL* easy = nullptr;           // the thread's, once it runs
  curl_slist* headers = nullptr;  // constant after construction

  std::mutex mu;
  std::condition_variable changed;
  // Guarded by mu.
  std::deque<Span> queue;
  Counts counted;
  bool stopping = false;
  Clock::time_point give_up_at{};

  std::thread thread;
};

SpanExporter::SpanExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpanExporter::~SpanExporter() = default;

std::unique_ptr<SpanExporter> SpanExporter::open(TraceSettings settings, Limits limits) {
  if (!settings.is_on()) return nullptr;
  return std::unique_ptr<SpanExporter>(
      new SpanExporter(std::make_unique<Impl>(std::move(settings), limits)));
}

const TraceSettings& SpanExporter::settings() const {
  return impl_->settings;
}
void SpanExporter::add(Span span) {
  impl_->add(std::move(span));
}
SpanExporter::Counts SpanExporter::counts() const {
  const std::scoped_lock lock(impl_->mu);
  return impl_->counted;
}

void trace_families(MetricsText& out, const SpanExporter::Counts& counts) {
  out.counter("kiln_trace_spans_exported_total", "Spans of traces that a collector took.",
              counts.exported);
  out.counter(
      "kiln_trace_spans_dropped_total",
      "Spans of traces that were dropped: the collector was away, too slow, or refused them.",
      counts.dropped);
}

}  // namespace kiln
