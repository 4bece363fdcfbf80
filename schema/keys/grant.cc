#include "schema/keys/grant.h"

#include <array>
#include <utility>

namespace kiln {
namespace {

constexpr std::array kGrants = {Grant::kRead, Grant::kSubmit, Grant::kPublish, Grant::kWorker,
                                Grant::kAdmin};
constexpr std::array kShares = {Share::kAll, Share::kTeam, Share::kPrivate};
constexpr std::array kTrusts = {Trust::kScreens, Trust::kFinals, Trust::kAlone};

}  // namespace

std::string_view to_string(Grant grant) {
  switch (grant) {
    case Grant::kRead:
      return "read";
    case Grant::kSubmit:
      return "submit";
    case Grant::kWorker:
      return "worker";
    case Grant::kAdmin:
      return "admin";
    case Grant::kPublish:
      return "publish";
  }
  return "unknown";
}

Result<Grant> parse_grant(std::string_view text) {
  for (const Grant grant : kGrants)
    if (text == to_string(grant)) return grant;
  return fail(
      Code::kInvalidArgument,
      "'" + std::string(text) + "' is no role; there are read, submit, publish, worker and admin");
}

std::string_view to_string(Share share) {
  switch (share) {
    case Share::kAll:
      return "all";
    case Share::kTeam:
      return "team";
    case Share::kPrivate:
      return "private";
  }
  return "unknown";
}

Result<Share> parse_share(std::string_view text) {
  for (const Share share : kShares)
    if (text == to_string(share)) return share;
  return fail(
      Code::kInvalidArgument,
      "'" + std::string(text) + "' is nobody to share with; there are private, team and all");
}

std::string_view to_string(Trust trust) {
  switch (trust) {
    case Trust::kScreens:
      return "screens";
    case Trust::kFinals:
      return "finals";
    case Trust::kAlone:
      return "alone";
  }
  return "unknown";
}

Result<Trust> parse_trust(std::string_view text) {
  for (const Trust trust : kTrusts)
    if (text == to_string(trust)) return trust;
  return fail(Code::kInvalidArgument,
              "'" + std::string(text) + "' is no trust; there are screens, finals and alone");
}

bool covers(Grant held, Grant needed) {
  return held == needed || held == Grant::kAdmin ||
         (held == Grant::kSubmit && needed == Grant::kRead) ||
         (held == Grant::kPublish && (needed == Grant::kSubmit || needed == Grant::kRead));
}

}  // namespace kiln
