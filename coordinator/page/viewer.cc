#include "coordinator/page/viewer.h"

#include <algorithm>

#include "schema/keys/page_token.h"

namespace kiln::page {
namespace {

// "[::1]:9557" has the host "[::1]".
std::string_view host_of(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

bool is_loopback_address(std::string_view text) {
  constexpr std::string_view kMapped = "::ffff:";
  if (text.starts_with(kMapped)) text.remove_prefix(kMapped.size());
  return text == "::1" || text == "[::1]" ||
         (text.starts_with("127.") &&
          text.find_first_not_of("0123456789.") == std::string_view::npos);
}

bool is_this_machine(const HttpRequest& request) {
  const std::string_view host = host_of(request.header("host"));
  const bool was_forwarded = std::ranges::any_of(request.headers, [](const auto& header) {
    return header.first == "forwarded" || header.first.starts_with("x-forwarded-") ||
           header.first == "x-real-ip" || header.first == "via";
  });
  return is_loopback_address(request.peer) && !was_forwarded &&
         (host.empty() || host == "localhost" || is_loopback_address(host));
}

std::string token_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view shown = request.header("authorization");
  if (shown.starts_with(kBearer)) return std::string(shown.substr(kBearer.size()));
  return cookie(request, kCookie);
}

}  // namespace

std::string cookie(const HttpRequest& request, std::string_view name) {
  std::string_view rest = request.header("cookie");
  while (!rest.empty()) {
    std::string_view part = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    part.remove_prefix(std::min(part.size(), part.find_first_not_of(' ')));
    const size_t is = part.find('=');
    if (is != std::string_view::npos && part.substr(0, is) == name)
      return std::string(part.substr(is + 1));
  }
  return "";
}

Result<Viewer> viewer_of(const HttpRequest& request, const Keyring* ring, int64_t now_s) {
  const std::string token = token_of(request);
  Error why{kiln::Code::kPermissionDenied,
            ring == nullptr ? "this coordinator takes no keys, so its page is for its own machine: "
                              "open it there under http://127.0.0.1, or through `ssh -L`"
                            : "reading this page from another machine takes a token; `kiln "
                              "page-token --key FILE` makes one",
            0};
  if (ring != nullptr && !token.empty()) {
    auto user = check_page_token(token, *ring, now_s);
    if (user && covers(user->grant, Grant::kRead)) return Viewer{*std::move(user), true, token};
    why =
        user ? Error{kiln::Code::kPermissionDenied, "a key of that role does not read this page", 0}
             : user.error();
  }
  if (!is_this_machine(request)) return fail(std::move(why));
  return Viewer{{"", ring == nullptr ? Grant::kAdmin : Grant::kRead}, false, "this machine"};
}

bool is_same_origin(const HttpRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return false;
  std::string_view origin = request.header("origin");
  if (origin.empty()) return true;
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return origin.substr(scheme.size()) == request.header("host");
  return false;
}

}  // namespace kiln::page
