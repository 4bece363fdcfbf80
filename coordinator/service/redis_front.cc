#include "coordinator/service/redis_front.h"

#include <algorithm>

#include "compiler_core/base/clock.h"
#include "coordinator/service/service_loop.h"
#include "schema/keys/page_token.h"

namespace kiln {
namespace {

constexpr size_t kHashDigits = 64;

// Keys are shown to operators, so they are ASCII that a terminal only prints.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

// Inductor writes `pt2:CACHE::KEY:c1`. The cache of Triton's configurations is named by a hash.
std::string_view artifact_kind_of_redis_key(std::string_view key) {
  constexpr std::string_view kStart = "pt2:", kMiddle = "::";
  if (!key.starts_with(kStart) || key.size() > kMaxArtifactKeyBytes || !is_plain(key)) return {};
  key.remove_prefix(kStart.size());
  const std::string_view cache = key.substr(0, key.find(kMiddle));
  if (cache.size() == key.size()) return {};
  if (cache == "fx-graph-v1") return "inductor.fx_graph";
  if (cache == "autograd-experimental") return "inductor.aot_autograd";
  return is_hash(cache) ? "inductor.autotune" : std::string_view();
}

RedisService redis_service(ServiceLoop& loop, std::shared_ptr<Keyring> keyring) {
  RedisService service;
  if (keyring != nullptr)
    service.sign_in = [keyring](std::string_view password) -> Result<User> {
      TRY(const User holder, check_page_token(password, *keyring, unix_ms() / 1000));
      User user = keyring->find_named(holder.name).value_or(holder);
      user.grant = holder.grant;  // what the token allows, which may be less than its key
      return user;
    };
  service.get = [&loop](const User& user, std::string key, RedisService::Got done) {
    ArtifactId id{std::string(artifact_kind_of_redis_key(key)), std::move(key)};
    if (id.kind.empty()) return done(std::nullopt);
    loop.post([&loop, user, id = std::move(id), done = std::move(done)] {
      loop.artifacts.read(user, id, [&loop, user, done](Result<KeptArtifact> found) {
        if (!found) loop.refusals.count(user.name, found.error().code);
        done(found ? std::optional(std::move(found->value)) : std::nullopt);
      });
    });
  };
  service.set = [&loop](const User& user, std::string key, std::string value,
                        RedisService::Done done) {
    ArtifactId id{std::string(artifact_kind_of_redis_key(key)), std::move(key)};
    if (id.kind.empty()) return done();
    loop.post([&loop, user, id = std::move(id), value = std::move(value), done = std::move(done)] {
      loop.artifacts.write(user, id, value, [&loop, user, done](const Status& stored) {
        if (!stored) loop.refusals.count(user.name, stored.error().code);
        done();
      });
    });
  };
  return service;
}

}  // namespace kiln
