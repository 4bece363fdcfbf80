#include "schema/keys/grant.h"

#include <array>
#include <utility>

namespace kiln {
namespace {

constexpr std::array kGrants = {Grant::kRead, Grant::kSubmit, Grant::kWorker, Grant::kAdmin};

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
  }
  return "unknown";
}

Result<Grant> parse_grant(std::string_view text) {
  for (const Grant grant : kGrants)
    if (text == to_string(grant)) return grant;
  return fail(Code::kInvalidArgument,
              "'" + std::string(text) + "' is no role; there are read, submit, worker and admin");
}

bool covers(Grant held, Grant needed) {
  return held == needed || held == Grant::kAdmin ||
         (held == Grant::kSubmit && needed == Grant::kRead);
}

}  // namespace kiln
