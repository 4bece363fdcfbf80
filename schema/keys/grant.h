// Grant: what the holder of a key may ask of a coordinator. Four roles for people and programs,
// each more than the one before, and one for machines that measure:
//
//   read     look-ups, binaries, statistics
//   submit   and compile requests that start work: a graph, hence code that workers will run
//   publish  and artifacts of other compilers that are code to whoever reads them (Inductor's entries
//            are unpickled)
//   worker   a worker's reports, and nothing else. Results are signed and served to everybody, so
//            no client's key includes it
//   admin    everything
//
// Share: whose a submit key's programs are. Trust: what the word of a worker's key counts for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

enum class Grant : uint8_t { kRead = 1, kSubmit = 2, kWorker = 3, kAdmin = 4, kPublish = 5 };

std::string_view to_string(Grant grant);           // "read", "submit", "publish", "worker", "admin"
Result<Grant> parse_grant(std::string_view text);  // kInvalidArgument names them
bool covers(Grant held, Grant needed);

// all: everybody with a key of this coordinator; team: the keys of one team; private: this key.
enum class Share : uint8_t { kAll, kTeam, kPrivate };
std::string_view to_string(Share share);           // "all", "team", "private"
Result<Share> parse_share(std::string_view text);  // kInvalidArgument names them

// screens: it compiles and screens candidates, never times a final, and no winner is served on its
// word alone; finals: it times finals; alone: its winners need no second key.
enum class Trust : uint8_t { kScreens, kFinals, kAlone };
std::string_view to_string(Trust trust);           // "screens", "finals", "alone"
Result<Trust> parse_trust(std::string_view text);  // kInvalidArgument names them

// The peer at the other end of a connection, as the handshake proved it. On a loopback connection
// without keys every peer belongs to this machine: no name, every right.
struct User {
  std::string name;
  Grant grant = Grant::kAdmin;
  Share share = Share::kAll;
  std::string team{};  // empty: none
  Trust trust = Trust::kFinals;
  bool operator==(const User&) const = default;
};

}  // namespace kiln
