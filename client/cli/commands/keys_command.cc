// `kiln keys`: manages who may use a coordinator, in its folder of keys (schema/keys/key_file.h).
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/make_key.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/base/signature.h"
#include "schema/keys/key_file.h"

namespace kiln::cli {
namespace {

int report(const Error& error) {
  print_error("", error);
  return exit_code_of(error);
}

int answer(const Options& options, const nlohmann::ordered_json& json, const std::string& text) {
  std::printf("%s\n", options.json ? json.dump().c_str() : text.c_str());
  return kDone;
}

}  // namespace

int keys_new_command(const Options& options) {
  const std::string& name = options.files.front();
  const Path folder = keys_folder(options);
  const auto file = make_key(options);
  if (!file) return report(file.error());
  const std::string use = options.role == "worker"
                              ? fmt::format("kiln-worker --key {}", file->filename().string())
                              : fmt::format("KILN_KEY={}", file->filename().string());
  return answer(
      options,
      {{"name", name}, {"role", options.role}, {"file", file->string()}, {"keys", folder.string()}},
      fmt::format("{} ({}): {}\nBring it to the machine of {} by a way that nobody reads, and "
                  "use it there: {}",
                  name, options.role, file->string(), name, use));
}

int keys_list_command(const Options& options) {
  const auto keys = read_authorized_keys(keys_folder(options));
  if (!keys) return report(keys.error());
  auto json = nlohmann::ordered_json::array();
  std::string text;
  for (const AuthorizedKey& key : *keys) {
    json.push_back({{"name", key.name},
                    {"role", to_string(key.grant)},
                    {"public_key", key.public_key},
                    {"share", to_string(key.share)},
                    {"team", key.team},
                    {"trust", to_string(key.trust)}});
    const std::string given = options_of(key);
    text += fmt::format("{}{:<7} {:<24} {}{}{}", text.empty() ? "" : "\n", to_string(key.grant),
                        key.name, key.public_key, given.empty() ? "" : "  ", given);
  }
  if (keys->empty()) text = "nobody has a key; `kiln keys new NAME` makes one";
  return answer(options, {{"keys", std::move(json)}}, text);
}

int keys_revoke_command(const Options& options) {
  const std::string& name = options.files.front();
  const bool keeps = options.keep_results;
  if (const auto revoked = revoke(keys_folder(options), name, keeps); !revoked)
    return report(revoked.error());
  return answer(
      options, {{"revoked", name}, {"results", keeps ? "kept" : "taken_back"}},
      fmt::format("{} is no longer let in; a running coordinator ends the sessions within a "
                  "second{}",
                  name, keeps ? "" : ", and takes back what the key reported"));
}

int keys_rotate_command(const Options& options) {
  if (options.data_dir.empty())
    return report(
        {Code::kInvalidArgument, "whose signing key? Name the coordinator's --data-dir", 0});
  const auto key = SigningKey::rotate(Path(options.data_dir) / kSigningFolder,
                                      std::chrono::hours(24) * options.overlap_days);
  if (!key) return report(key.error());
  const int64_t until_s = key->endorsement().until_s;
  const std::string others =
      until_s == 0 ? "Nobody trusts it yet: make new key files (kiln keys new) for all"
                   : fmt::format(
                         "Key files of before go on for {} days; make new ones (kiln keys "
                         "new) until then",
                         options.overlap_days);
  return answer(options,
                {{"signing_key", to_hex(key->public_key())}, {"endorsed_until_s", until_s}},
                fmt::format("{}\nis the signing key once the coordinator is started again. {}.",
                            to_hex(key->public_key()), others));
}

int keys_show_command(const Options& options) {
  const Path folder = keys_folder(options);
  const auto server = read_server_keys(folder);
  if (!server)
    return report(server.error().code == Code::kNotFound
                      ? Error{Code::kNotFound,
                              "the coordinator has no key yet; `kiln keys new NAME` makes it", 0}
                      : server.error());
  return answer(options, {{"server", server->public_key}, {"keys", folder.string()}},
                fmt::format("{}\nin {}", server->public_key, folder.string()));
}

}  // namespace kiln::cli
