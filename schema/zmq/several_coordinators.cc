// Connection::open(): the one of several coordinators that will do.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "compiler_core/base/clock.h"
#include "schema/zmq/transport.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostEndpoints = 16;
constexpr int kLeastSilenceMs = 100;  // one that answers later than that is tried in vain
constexpr milliseconds kBetweenRounds{50};

}  // namespace

Result<std::vector<std::string>> parse_endpoints(const std::string& list) {
  std::vector<std::string> endpoints;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    endpoints.push_back(list.substr(begin, end - begin));
    begin = end + 1;
    const auto parsed = parse_endpoint(endpoints.back());
    if (!parsed) return fail(parsed.error());
  }
  if (endpoints.size() <= kMostEndpoints) return endpoints;
  return fail(Code::kInvalidArgument,
              fmt::format("{} coordinators are named, and at most {} are tried", endpoints.size(),
                          kMostEndpoints));
}

Result<std::unique_ptr<Connection>> Connection::open(const std::string& endpoints, Role role,
                                                     int timeout_ms,
                                                     const ConnectOptions& options) {
  const auto deadline = Clock::now() + milliseconds(timeout_ms);
  TRY(std::vector<std::string> turns, parse_endpoints(endpoints));
  if (const auto first = std::ranges::find(turns, options.first); first != turns.end())
    std::rotate(turns.begin(), first, turns.end());
  const bool several = turns.size() > 1;
  const int part_ms = timeout_ms / static_cast<int>(turns.size());
  for (;;) {
    bool nobody_answers = true, all_refuse = true;
    Error why;
    for (const std::string& endpoint : turns) {
      const int left_ms = ms_until(deadline);
      const int wait_ms = several ? std::min(left_ms, std::max(part_ms, kLeastSilenceMs)) : left_ms;
      auto opened = open_one(endpoint, role, wait_ms, several, options);
      const bool follows = opened && (*opened)->welcome().follower;
      if (opened && (!follows || options.follower_will_do)) return opened;
      nobody_answers &= !follows;
      if (!opened) why = std::move(opened).error();
      all_refuse &= !follows && why.code != Code::kUnavailable;
    }
    if (all_refuse || (!several && nobody_answers)) return fail(std::move(why));
    if (ms_until(deadline) == 0 && nobody_answers)
      return fail(Code::kUnavailable,
                  fmt::format("no coordinator answers at {} within {} ms", endpoints, timeout_ms));
    if (ms_until(deadline) == 0)
      return fail(Code::kUnavailable,
                  fmt::format("of the coordinators at {} none leads now", endpoints));
    std::this_thread::sleep_for(std::min(kBetweenRounds, milliseconds(ms_until(deadline))));
  }
}

}  // namespace kiln
