#include "coordinator/service/http_front.h"

#include "coordinator/status/status_pages.h"

namespace kiln {

Result<std::unique_ptr<HttpFront>> HttpFront::open(const std::string& address,
                                                   std::shared_ptr<ServiceStatus> status,
                                                   std::function<int64_t()> lines_dropped) {
  std::unique_ptr<HttpFront> front(new HttpFront());
  front->status_ = std::move(status);
  front->lines_dropped_ = std::move(lines_dropped);
  const auto handler = [answering = front.get()](HttpRequest request, HttpPort::Reply reply) {
    answering->handle(std::move(request), std::move(reply));
  };
  TRY(front->port_, HttpPort::serve(address, handler));
  return front;
}

HttpFront::~HttpFront() {
  detach();
}

void HttpFront::handle(HttpRequest request, HttpPort::Reply reply) {
  if (is_status_path(request.path)) {
    if (request.is_get())
      return reply(
          status_page(*status_, ServiceStatus::Clock::now(), lines_dropped_(), request.path));
    HttpAnswer refused = plain_answer(405, "GET is all that is answered here");
    refused.headers = {{"Allow", "GET, HEAD"}};
    return reply(std::move(refused));
  }
  const std::lock_guard lock(mutex_);
  if (page_ != nullptr) return page_->handle(std::move(request), std::move(reply));
  reply(plain_answer(503, "starting or stopping; /metrics, /healthz and /readyz are here"));
}

void HttpFront::attach(PageSource& source) {
  auto page = std::make_unique<PageServer>(
      source, [this] { return port_->streams(); },
      [this](std::string text) { port_->publish(std::move(text)); });
  const std::lock_guard lock(mutex_);
  page_ = std::move(page);
}

void HttpFront::detach() {
  std::unique_ptr<PageServer> page;
  const std::lock_guard lock(mutex_);
  page.swap(page_);
}

}  // namespace kiln
