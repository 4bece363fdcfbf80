// Viewer: who asks for a page, and what they may. Pure functions of the request.
//
//   a page token (schema/keys/page_token.h), as the cookie that the sign-in form sets or as
//     `Authorization: Bearer`: what it grants
//   this machine's own loopback address, not forwarded and under a name that only this machine has:
//     reading; and everything, where the coordinator takes no keys
//   anybody else: nothing
//
// A name that only this machine has, because a hostile site's name may lead a browser here too.
#pragma once

#include "schema/keys/keyring.h"
#include "schema/metrics/http_request.h"

namespace kiln::page {

inline constexpr char kCookie[] = "kiln_page";

struct Viewer {
  User user;
  bool signed_in = false;
  std::string identity{};  // the token, or that it is this machine: what the acts' token stands for
};

// `ring`: null where the coordinator takes no keys. kPermissionDenied says what to do.
Result<Viewer> viewer_of(const HttpRequest& request, const Keyring* ring, int64_t now_s);

// Whether the request comes from a page of this very address, as far as the browser says.
bool is_same_origin(const HttpRequest& request);

// The value of a cookie; empty: there is none.
std::string cookie(const HttpRequest& request, std::string_view name);

}  // namespace kiln::page
