#include "schema/zmq/gatekeeper.h"

#include <array>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "schema/zmq/socket.h"

namespace kiln {

Gatekeeper::Gatekeeper(zmq::context_t& context, std::shared_ptr<const Keyring> keyring)
    : keyring_(std::move(keyring)),
      questions_(std::make_unique<zmq::socket_t>(context, zmq::socket_type::rep)),
      stop_(std::make_unique<SocketWake>()) {
  questions_->set(zmq::sockopt::linger, 0);
  questions_->bind("inproc://zeromq.zap.01");
  thread_ = std::thread([this] { run(); });
}

Gatekeeper::~Gatekeeper() {
  stop_->signal();
  thread_.join();
}

void Gatekeeper::run() {
  for (;;) {
    zmq_pollitem_t items[] = {{questions_->handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, stop_->fd(), ZMQ_POLLIN, 0}};
    if (zmq_poll(items, std::size(items), -1) < 0) continue;
    if (items[1].revents != 0) return;
    if (items[0].revents != 0) answer();
  }
}

// A request is version, request id, domain, address, identity, mechanism and, under CURVE, the
// public key in 32 bytes. The reply is version, request id, status, text, user id and metadata.
void Gatekeeper::answer() {
  std::vector<std::string> request;
  for (bool more = true; more;) {
    zmq::message_t part;
    if (!receive_frame(*questions_, part)) return;
    more = part.more();
    request.push_back(part.to_string());
  }
  std::string key, status = "400", text = "this key is not authorized";
  if (request.size() == 7 && request[2] == kDomain && request[5] == "CURVE" &&
      request[6].size() == 32) {
    std::array<char, 41> printed;
    zmq_z85_encode(printed.data(), reinterpret_cast<const uint8_t*>(request[6].data()), 32);
    if (keyring_->find(printed.data())) {
      key = printed.data();
      status = "200";
      text.clear();
    }
  }
  const std::string id = request.size() > 1 ? request[1] : "";
  send_frame(*questions_, "1.0", ZMQ_SNDMORE);
  send_frame(*questions_, id, ZMQ_SNDMORE);
  send_frame(*questions_, status, ZMQ_SNDMORE);
  send_frame(*questions_, text, ZMQ_SNDMORE);
  send_frame(*questions_, key, ZMQ_SNDMORE);
  send_frame(*questions_, "");
}

}  // namespace kiln
