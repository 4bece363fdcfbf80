// `kiln keys`: manages who may use a coordinator, in its folder of keys (schema/keys/key_file.h).
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/base/signature.h"
#include "schema/keys/key_file.h"

namespace kiln::cli {
namespace {

Path folder_of(const Options& options) {
  return options.keys_dir.empty() ? Path(options.data_dir) / "keys" : Path(options.keys_dir);
}

int report(const Error& error) {
  print_error("", error);
  return exit_code_of(error);
}

int say(const Options& options, const nlohmann::ordered_json& json, const std::string& text) {
  std::printf("%s\n", options.json ? json.dump().c_str() : text.c_str());
  return kDone;
}

// The public key that this coordinator signs with; empty when its keys lie in a folder of their
// own, away from a data directory: a client then trusts the key that the coordinator presents.
Result<std::string> signing_key(const Options& options) {
  const Path folder = Path(options.data_dir) / kSigningFolder;
  if (!options.keys_dir.empty() && !std::filesystem::exists(folder)) return std::string();
  TRY(const SigningKey key, SigningKey::load_or_create(folder));
  return to_hex(key.public_key());
}

// Writes the key file before it authorises the key, so that every authorised key can be used.
Result<Path> make_key(const Options& options, const Path& folder) {
  ClientKey key;
  key.name = options.files.front();
  TRY_STATUS(check_key_name(key.name));  // before anything is made for it
  TRY(key.grant, parse_grant(options.role));
  TRY(const KeyPair server, ensure_server_keys(folder));
  key.server_key = server.public_key;
  key.pair = make_key_pair();
  TRY(key.signing_key, signing_key(options));
  const Path file = options.out.empty() ? Path(key.name + ".key") : Path(options.out);
  TRY_STATUS(write_client_key(file, key));
  if (auto let_in = authorize(folder, {key.grant, key.name, key.pair.public_key}); !let_in) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    return fail(std::move(let_in).error());
  }
  return file;
}

}  // namespace

int keys_new_command(const Options& options) {
  const std::string& name = options.files.front();
  const Path folder = folder_of(options);
  const auto file = make_key(options, folder);
  if (!file) return report(file.error());
  const std::string use = options.role == "worker"
                              ? fmt::format("kiln-worker --key {}", file->filename().string())
                              : fmt::format("KILN_KEY={}", file->filename().string());
  return say(
      options,
      {{"name", name}, {"role", options.role}, {"file", file->string()}, {"keys", folder.string()}},
      fmt::format("{} ({}): {}\nBring it to the machine of {} by a way that nobody reads, and "
                  "use it there: {}",
                  name, options.role, file->string(), name, use));
}

int keys_list_command(const Options& options) {
  const auto keys = read_authorized_keys(folder_of(options));
  if (!keys) return report(keys.error());
  auto json = nlohmann::ordered_json::array();
  std::string text;
  for (const AuthorizedKey& key : *keys) {
    json.push_back(
        {{"name", key.name}, {"role", to_string(key.grant)}, {"public_key", key.public_key}});
    text += fmt::format("{}{:<7} {:<24} {}", text.empty() ? "" : "\n", to_string(key.grant),
                        key.name, key.public_key);
  }
  if (keys->empty()) text = "nobody has a key; `kiln keys new NAME` makes one";
  return say(options, {{"keys", std::move(json)}}, text);
}

int keys_revoke_command(const Options& options) {
  const std::string& name = options.files.front();
  if (const auto revoked = revoke(folder_of(options), name); !revoked)
    return report(revoked.error());
  return say(options, {{"revoked", name}},
             fmt::format("{} is no longer let in; a running coordinator ends the sessions within a "
                         "second",
                         name));
}

int keys_show_command(const Options& options) {
  const Path folder = folder_of(options);
  const auto server = read_server_keys(folder);
  if (!server)
    return report(server.error().code == Code::kNotFound
                      ? Error{Code::kNotFound,
                              "the coordinator has no key yet; `kiln keys new NAME` makes it", 0}
                      : server.error());
  return say(options, {{"server", server->public_key}, {"keys", folder.string()}},
             fmt::format("{}\nin {}", server->public_key, folder.string()));
}

}  // namespace kiln::cli
