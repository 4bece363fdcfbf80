// HttpFront: the coordinator's HTTP port: /metrics, /healthz and /readyz (status/status_pages.h),
// answered on the port's own thread at once, and everything else by the web page, once there is a
// service for it. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "coordinator/service/page_server.h"
#include "coordinator/status/service_status.h"

namespace kiln {

class HttpFront {
 public:
  // Errors as of HttpPort::open. `lines_dropped`: by the log.
  static Result<std::unique_ptr<HttpFront>> open(const std::string& address,
                                                 std::shared_ptr<ServiceStatus> status,
                                                 std::function<int64_t()> lines_dropped);
  ~HttpFront();

  const std::string& endpoint() const { return port_->endpoint(); }
  // Serves the page of `source` from now on, until detach(), which waits for the answer that is
  // being made. REQUIRES: `source` lives until then.
  void attach(PageSource& source);
  void detach();

 private:
  HttpFront() = default;
  void handle(HttpRequest request, HttpPort::Reply reply);

  std::shared_ptr<ServiceStatus> status_;
  std::function<int64_t()> lines_dropped_;
  std::mutex mutex_;
  std::unique_ptr<PageServer> page_;  // guarded by mutex_
  std::unique_ptr<HttpPort> port_;    // last: its thread uses the rest
};

}  // namespace kiln
