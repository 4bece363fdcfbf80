#include "schema/keys/key_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/base/file.h"

namespace kiln {
namespace {

constexpr size_t kKeyCharacters = 40;
constexpr size_t kMaxNameCharacters = 64;
constexpr char kServerFile[] = "coordinator.key", kAuthorizedFile[] = "authorized_keys",
               kRevokedFile[] = "revoked_keys";

Error system_error(std::string_view what, const Path& path, int error) {
  return {error == ENOENT ? Code::kNotFound : Code::kInvalidArgument,
          fmt::format("{} {}: {}", what, path.string(), std::strerror(error)), 0};
}

// Whether libzmq would write the key again as it stands: libzmq reads only up to a NUL, and accepts
// some characters that are no digits of Z85.
bool is_key(std::string_view text) {
  std::array<uint8_t, 32> bytes;
  std::array<char, kKeyCharacters + 1> again;
  return text.size() == kKeyCharacters &&
         zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr &&
         zmq_z85_encode(again.data(), bytes.data(), bytes.size()) != nullptr &&
         text == std::string_view(again.data(), kKeyCharacters);
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameCharacters && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                  std::string_view("._@-").find(c) != std::string_view::npos;
         });
}

// Lines `name = value`. A value may hold any character but the end of the line.
Result<std::map<std::string, std::string>> read_fields(const Path& file) {
  TRY(const std::string text, read_file(file));
  std::map<std::string, std::string> fields;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    constexpr std::string_view kIs = " = ";
    const size_t is = line.find(kIs);
    const bool blank = line.ends_with(" =") && is == std::string::npos;
    if (is == std::string::npos && !blank) {
      return fail(Code::kInvalidArgument, fmt::format("{} line {}: not `name = value`; is it a key "
                                                      "file of `kiln keys new`?",
                                                      file.string(), number));
    }
    fields[line.substr(0, blank ? line.size() - 2 : is)] =
        blank ? "" : line.substr(is + kIs.size());
  }
  return fields;
}

Result<std::string> key_field(const std::map<std::string, std::string>& fields,
                              const std::string& name, const Path& file) {
  const auto found = fields.find(name);
  if (found != fields.end() && is_key(found->second)) return found->second;
  return fail(Code::kInvalidArgument,
              fmt::format("{} has no {} key of 40 characters; `kiln keys new` makes such files",
                          file.string(), name));
}

// Never replaces another file, and leaves none at all when the process is killed meanwhile.
Status write_private(const Path& file, std::string_view text) {
  std::error_code ignored;
  const Error taken{Code::kInvalidArgument,
                    file.string() + " is there already; move it away, or name another file", 0};
  if (std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) return fail(taken);
  if (Status written = publish_secret(file, text); !written) {
    const Path folder = file.has_parent_path() ? file.parent_path() : Path(".");
    written.error().code =
        std::filesystem::exists(folder, ignored) ? Code::kInvalidArgument : Code::kNotFound;
    return written;
  }
  const auto kept = read_file(file);  // when several make it at once, the first wins
  return kept && *kept != text ? Status(fail(taken)) : Status();
}

// Others on this machine may not read a secret. Its group may: a mounted secret has such a mode.
Status check_secret(const Path& file, std::string_view then) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return fail(system_error("cannot read", file, errno));
  if ((status.st_mode & S_IROTH) == 0) return {};
  return fail(Code::kPermissionDenied,
              fmt::format("anybody on this machine can read {}: chmod 600 it (and if somebody may "
                          "have, {})",
                          file.string(), then));
}

// The entries of a file with one a line; none when there is no such file. Empty lines and comments
// have none. `read` takes a line's words; its error gets the file's name and the line's number.
template <class Entry>
Result<std::vector<Entry>> read_lines(const Path& file,
                                      Result<Entry> (*read)(std::istringstream& words)) {
  std::vector<Entry> entries;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return entries;
  TRY(const std::string text, read_file(file));
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    std::istringstream words(line);
    Result<Entry> entry = read(words);
    if (!entry) return fail(entry.error().within(fmt::format("{} line {}", file.string(), number)));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

Result<FileLock> lock(const Path& folder) {
  return FileLock::acquire(folder / ".lock", FileLock::Mode::kExclusive);
}

Status write_authorized_keys(const Path& folder, const std::vector<AuthorizedKey>& keys) {
  std::string text =
      "# Who may speak to this coordinator: role, name, public key, options. `kiln keys` writes "
      "it; "
      "a\n# coordinator that runs reads it again when it changes, and ends the sessions of whoever "
      "left.\n";
  for (const AuthorizedKey& key : keys) {
    const std::string options = options_of(key);
    text += fmt::format("{} {} {}{}{}\n", to_string(key.grant), key.name, key.public_key,
                        options.empty() ? "" : " ", options);
  }
  return publish_file(folder / kAuthorizedFile, text);
}

Status read_option(std::string_view word, AuthorizedKey& key) {
  const size_t is = word.find('=');
  const std::string_view name = word.substr(0, is);
  const std::string_view value = is == std::string_view::npos ? "" : word.substr(is + 1);
  if (name == "share") {
    TRY(key.share, parse_share(value));
  } else if (name == "trust") {
    TRY(key.trust, parse_trust(value));
  } else if (name == "team") {
    key.team = value;
  } else {
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is no option; there are share, team and trust", word));
  }
  return {};
}

Status check_options(const AuthorizedKey& key) {
  if (!key.team.empty() && !is_name(key.team))
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' cannot be the name of a team: up to {} letters, digits and . _ @ "
                            "-",
                            key.team, kMaxNameCharacters));
  if (key.share == Share::kTeam && key.team.empty())
    return fail(Code::kInvalidArgument, "a key that shares with its team needs one (team)");
  if (key.trust != Trust::kFinals && key.grant != Grant::kWorker)
    return fail(Code::kInvalidArgument, "trust is of keys with the role worker");
  const bool is_of_clients = key.grant != Grant::kWorker;
  if (!is_of_clients && (key.share != Share::kAll || !key.team.empty()))
    return fail(Code::kInvalidArgument, "a worker's key has no team, and no programs to share");
  return {};
}

Result<AuthorizedKey> read_authorized_key(std::istringstream& words) {
  std::string role, option;
  AuthorizedKey key;
  words >> role >> key.name >> key.public_key;
  const auto grant = parse_grant(role);
  if (!grant || !words || !is_name(key.name) || !is_key(key.public_key))
    return fail(Code::kInvalidArgument, "not `role name public-key`");
  key.grant = *grant;
  while (words >> option) TRY_STATUS(read_option(option, key));
  TRY_STATUS(check_options(key));
  return key;
}

Result<RevokedKey> read_revoked_key(std::istringstream& words) {
  RevokedKey key;
  std::string results;
  words >> key.name >> key.at_ms >> results;
  if (!words || !is_name(key.name))
    return fail(Code::kInvalidArgument, "not `name time taken|kept`");
  key.keep_results = results == "kept";
  return key;
}

}  // namespace

std::string options_of(const AuthorizedKey& key) {
  std::string text;
  const auto add = [&text](std::string_view name, std::string_view value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  };
  if (key.share != Share::kAll) add("share", to_string(key.share));
  if (!key.team.empty()) add("team", key.team);
  if (key.trust != Trust::kFinals) add("trust", to_string(key.trust));
  return text;
}

KeyPair make_key_pair() {
  std::array<char, kKeyCharacters + 1> public_key, secret_key;
  CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0, "libzmq has CURVE");
  return {public_key.data(), secret_key.data()};
}

Result<ClientKey> read_client_key(const Path& file) {
  Status safe = check_secret(file, "revoke it and make another");
  if (!safe && safe.error().code == Code::kNotFound)
    safe.error().message += "; `kiln keys new` makes keys, on the coordinator's machine";
  TRY_STATUS(safe);
  TRY(auto fields, read_fields(file));
  ClientKey key;
  key.name = fields["name"];
  if (!is_name(key.name)) {
    return fail(Code::kInvalidArgument,
                file.string() + " does not say whose key it is; `kiln keys new` makes such files");
  }
  TRY(key.grant, parse_grant(fields["role"]));
  TRY(key.pair.public_key, key_field(fields, "public", file));
  TRY(key.pair.secret_key, key_field(fields, "secret", file));
  TRY(key.server_key, key_field(fields, "server", file));
  key.signing_key = fields["signing_key"];
  return key;
}

Status write_client_key(const Path& file, const ClientKey& key) {
  return write_private(
      file, fmt::format("# Key of {} for a Kiln coordinator. Who has it acts in that name: keep it "
                        "secret.\nname = {}\nrole = {}\npublic = {}\nsecret = {}\nserver = {}\n"
                        "signing_key = {}\n",
                        key.name, key.name, to_string(key.grant), key.pair.public_key,
                        key.pair.secret_key, key.server_key, key.signing_key));
}

Result<KeyPair> read_server_keys(const Path& folder) {
  const Path file = folder / kServerFile;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return fail(Code::kNotFound, "no keys in " + folder.string());
  TRY_STATUS(check_secret(file, "remove it, start anew and hand out new key files"));
  TRY(const auto fields, read_fields(file));
  KeyPair pair;
  TRY(pair.public_key, key_field(fields, "public", file));
  TRY(pair.secret_key, key_field(fields, "secret", file));
  return pair;
}

Result<KeyPair> ensure_server_keys(const Path& folder) {
  TRY_STATUS(make_directories(folder));
  ::chmod(folder.c_str(), 0700);
  TRY(const FileLock held, lock(folder));
  remove_unpublished(folder);
  auto pair = read_server_keys(folder);
  if (pair || pair.error().code != Code::kNotFound) return pair;
  const KeyPair made = make_key_pair();
  TRY_STATUS(
      write_private(folder / kServerFile,
                    fmt::format("# The coordinator's own key. Clients trust whoever has it.\n"
                                "public = {}\nsecret = {}\n",
                                made.public_key, made.secret_key)));
  return made;
}

Result<std::vector<AuthorizedKey>> read_authorized_keys(const Path& folder) {
  return read_lines<AuthorizedKey>(folder / kAuthorizedFile, read_authorized_key);
}

Status check_key_name(const std::string& name) {
  if (is_name(name)) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("'{}' cannot be the name of a key: up to {} letters, digits and . _ @ -",
                          name, kMaxNameCharacters));
}

Status check_new_key(const AuthorizedKey& key) {
  TRY_STATUS(check_key_name(key.name));
  return check_options(key);
}

Status authorize(const Path& folder, const AuthorizedKey& key) {
  TRY_STATUS(check_new_key(key));
  TRY(const FileLock held, lock(folder));
  TRY(auto keys, read_authorized_keys(folder));
  if (std::ranges::find(keys, key.name, &AuthorizedKey::name) != keys.end()) {
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' has a key; `kiln keys revoke {}` ends it, or choose another name",
                            key.name, key.name));
  }
  keys.push_back(key);
  return write_authorized_keys(folder, keys);
}

Result<std::vector<RevokedKey>> read_revoked_keys(const Path& folder) {
  return read_lines<RevokedKey>(folder / kRevokedFile, read_revoked_key);
}

Status revoke(const Path& folder, const std::string& name, bool keep_results) {
  const Error nobody{Code::kNotFound,
                     fmt::format("nobody is called '{}'; `kiln keys list` names them", name), 0};
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kAuthorizedFile, ignored)) return fail(nobody);
  TRY(const FileLock held, lock(folder));
  TRY(auto keys, read_authorized_keys(folder));
  if (std::erase_if(keys, [&](const AuthorizedKey& key) { return key.name == name; }) == 0)
    return fail(nobody);
  // First: a coordinator reads it when the other one changes.
  const std::string before = read_file(folder / kRevokedFile).value_or("");
  TRY_STATUS(publish_file(
      folder / kRevokedFile,
      fmt::format("{}{} {} {}\n", before, name, unix_ms(), keep_results ? "kept" : "taken")));
  return write_authorized_keys(folder, keys);
}

}  // namespace kiln
