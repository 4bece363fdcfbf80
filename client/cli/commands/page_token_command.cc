// `kiln page-token`: a token with which a browser may read a coordinator's web page
// (schema/keys/page_token.h). Needs the key file alone, and no coordinator.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/base/clock.h"
#include "schema/keys/page_token.h"

namespace kiln::cli {
namespace {

struct Made {
  std::string token;
  ClientKey key;
  int64_t until_s = 0;
};

Result<Made> make(const Options& options) {
  if (options.key.empty())
    return fail(Code::kInvalidArgument,
                "whose token? name a key file of `kiln keys new` with --key, or in KILN_KEY");
  Made made;
  TRY(made.key, read_client_key(options.key));
  TRY(const Grant grant, parse_grant(options.token_role));
  made.until_s = unix_ms() / 1000 + static_cast<int64_t>(options.token_hours * 3600);
  TRY(made.token, make_page_token(made.key, grant, made.until_s));
  return made;
}

}  // namespace

int page_token_command(const Options& options) {
  const auto made = make(options);
  if (!made) {
    print_error(options, "", made.error());
    return exit_code_of(made.error());
  }
  if (options.json) {
    const nlohmann::ordered_json json = {{"token", made->token},
                                         {"name", made->key.name},
                                         {"role", options.token_role},
                                         {"until", made->until_s}};
    std::printf("%s\n", json.dump().c_str());
    return kDone;
  }
  std::printf("%s\n", made->token.c_str());
  fmt::print(
      stderr,
      "For the page's sign-in form, or `curl -H \"Authorization: Bearer TOKEN\"`. Whoever has "
      "it may {} as '{}' for {:g} hours.\n",
      options.token_role == "read" ? "read" : "read and act", made->key.name, options.token_hours);
  return kDone;
}

}  // namespace kiln::cli
