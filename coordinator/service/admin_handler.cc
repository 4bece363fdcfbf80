#include "coordinator/service/admin_handler.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace kiln {
namespace {

std::string describe(const AdminRequest& request) {
  switch (request.kind) {
    case AdminRequest::Kind::kDrain:
      return "drain " + request.worker;
    case AdminRequest::Kind::kPin:
      return "pin " + request.key.value_or(Digest{}).short_hex();
    case AdminRequest::Kind::kUnpin:
      return "unpin " + request.key.value_or(Digest{}).short_hex();
    case AdminRequest::Kind::kCollect:
      return fmt::format("collect down to {} bytes", request.amount);
    case AdminRequest::Kind::kForgetFailed:
      return "forget failed";
  }
  return "an unknown request";
}

// Thread-safe. Operators' requests leave a trace in the log.
void answer(EventLoop& loop, const AdminHandler::Reply& reply, const PeerId& peer,
            const AdminRequest& request, Result<std::string> outcome) {
  loop.post([&loop, reply, peer, request, outcome = std::move(outcome)] {
    loop.log(LogLine("admin")
                 .add("request", describe(request))
                 .add("outcome", outcome ? *outcome : outcome.error().message));
    reply(peer, {request.request, outcome});
  });
}

}  // namespace

void AdminHandler::handle(const PeerId& peer, const AdminRequest& request) {
  switch (request.kind) {
    case AdminRequest::Kind::kPin:
    case AdminRequest::Kind::kUnpin:
      return pin(peer, request);
    case AdminRequest::Kind::kCollect:
      return collect(peer, request);
    case AdminRequest::Kind::kDrain:
      return drain(peer, request);
    case AdminRequest::Kind::kForgetFailed:
      return forget_failed(peer, request);
  }
  answer(loop_, reply_, peer, request,
         fail(Code::kUnsupported, "this coordinator knows no such request"));
}

void AdminHandler::pin(const PeerId& peer, const AdminRequest& request) {
  if (!request.key) {
    return answer(loop_, reply_, peer, request,
                  fail(Code::kInvalidArgument, "which program? name its key"));
  }
  const bool pinned = request.kind == AdminRequest::Kind::kPin;
  const auto done = [&loop = loop_, reply = reply_, peer, request, pinned](const Status& status) {
    if (!status) return answer(loop, reply, peer, request, fail(status.error()));
    const nlohmann::ordered_json json = {{"program", request.key->hex()}, {"pinned", pinned}};
    answer(loop, reply, peer, request, json.dump());
  };
  if (pinned) {
    cache_.pin(*request.key, done);
  } else {
    cache_.unpin(*request.key, done);
  }
}

void AdminHandler::collect(const PeerId& peer, const AdminRequest& request) {
  if (request.amount < 0) {
    return answer(loop_, reply_, peer, request,
                  fail(Code::kInvalidArgument, "a size in bytes is 0 or more"));
  }
  cache_.collect(request.amount, [&loop = loop_, reply = reply_, peer, request](
                                     KernelCache::Collected got, const Status& status) {
    // Not reaching the size is no failure of the request; the reply says why.
    const nlohmann::ordered_json json = {{"freed_bytes", got.bytes},
                                         {"programs", got.programs},
                                         {"entries", got.entries},
                                         {"stored_bytes", got.left_bytes},
                                         {"reached", status.has_value()},
                                         {"reason", status ? "" : status.error().message},
                                         {"damaged_files", got.damaged_files},
                                         {"damaged_bytes", got.damaged_bytes}};
    answer(loop, reply, peer, request, json.dump());
  });
}

void AdminHandler::forget_failed(const PeerId& peer, const AdminRequest& request) {
  const nlohmann::ordered_json json = {{"forgotten", core_.stats(loop_.now_ms()).detached_failed}};
  loop_.step(ForgetFailures{});
  store_.forget_damaged_tasks();
  answer(loop_, reply_, peer, request, json.dump());
}

void AdminHandler::drain(const PeerId& peer, const AdminRequest& request) {
  const Stats stats = core_.stats(loop_.now_ms());
  std::string there;
  for (const WorkerStats& worker : stats.workers) {
    if (worker.name != request.worker) {
      there += (there.empty() ? "" : ", ") + worker.name;
      continue;
    }
    loop_.step(DrainRequested{request.worker});
    const nlohmann::ordered_json json = {
        {"worker", worker.name}, {"state", "draining"}, {"leases", worker.leases}};
    return answer(loop_, reply_, peer, request, json.dump());
  }
  answer(loop_, reply_, peer, request,
         fail(Code::kNotFound, fmt::format("no worker '{}'; there are: {}", request.worker,
                                           there.empty() ? "none" : there)));
}

}  // namespace kiln
