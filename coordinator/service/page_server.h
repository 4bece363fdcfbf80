// PageServer: answers the web page's requests: who asks (page/viewer.h), what is known of it
// (PageSource), how it is shown (page/views.h). One thread of its own reads and renders; requests
// wait in a queue with a bound, so that many viewers cost one thread and the service's loop at most
// one snapshot each half second. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "compiler_core/page/query.h"
#include "coordinator/page/viewer.h"
#include "coordinator/service/page_source.h"
#include "schema/metrics/http_port.h"

namespace kiln {

class PageServer {
 public:
  static constexpr size_t kMaxWaiting = 32;

  // `watched`: how many streams are open; `publish`: sends to them.
  PageServer(PageSource& source, std::function<size_t()> watched,
             std::function<void(std::string)> publish);
  ~PageServer();  // requests that wait go unanswered

  void handle(HttpRequest request, HttpPort::Reply reply);

 private:
  struct Waiting {
    HttpRequest request;
    HttpPort::Reply reply;
  };
  void run();
  void tell_viewers();
  std::shared_ptr<const page::Snapshot> snapshot();
  HttpAnswer answer(const HttpRequest& request);
  HttpAnswer view(const HttpRequest& request, const page::Viewer& viewer, page::Query query);
  Result<page::Document> document(const std::string& path, const page::Snapshot& now,
                                  const page::Query& query);
  Result<std::vector<AdminAct>> latest_acts();
  page::ProgramFacts program_facts(const Digest& key, const page::Snapshot& now);
  std::map<Digest, page::WorkloadFacts> workloads_of(const Program& program);
  HttpAnswer act(const HttpRequest& request, const page::Viewer& viewer);
  HttpAnswer sign_in(const HttpRequest& request);
  HttpAnswer refused(const HttpRequest& request, const Error& why) const;
  std::string act_token(const page::Viewer& viewer) const;

  PageSource& source_;
  const std::function<size_t()> watched_;
  const std::function<void(std::string)> publish_;
  const std::string secret_;  // of this process, for the tokens that acts carry

  // The thread's own.
  std::shared_ptr<const page::Snapshot> latest_;
  std::chrono::steady_clock::time_point taken_{}, told_{};
  std::string last_told_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Waiting> waiting_;
  bool stopping_ = false;

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
