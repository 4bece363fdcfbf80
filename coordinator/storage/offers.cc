#include "coordinator/storage/offers.h"

#include <algorithm>
#include <future>

namespace kiln {
namespace {

// The part of `key` that OfferedKernel::place() gives; empty where it is no key of an offer.
std::string place_of(const std::string& key) {
  const size_t end = key.rfind('/');
  return end == std::string::npos ? "" : key.substr(0, end + 1);
}

std::string_view name_in(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

}  // namespace

Status Offers::read(const Path& file) {
  auto listed = ArtifactStore::list(file, kOfferedKind, 0);
  if (!listed) return fail(listed.error());
  std::ranges::sort(*listed, {}, &ListedArtifact::made_ms);
  for (const ListedArtifact& each : *listed)
    if (each.id.kind == kOfferedKind) added(each.id.key, each.owner, each.made_ms);
  return {};
}

Status Offers::check(const std::string& key, std::string_view value, const Audience& audience) {
  TRY(const OfferedKernel offered, offered_from_text(value));
  if (offered.key() != key)
    return fail(Code::kInvalidArgument, "the key of this offered kernel is " + offered.key());
  if (!audience.is_all())
    return fail(Code::kPermissionDenied,
                "kernels are tuned for everybody, and what this key puts is for some: offer with a "
                "key that shares with all");
  return {};
}

void Offers::added(const std::string& key, const std::string& owner, int64_t made_ms) {
  const std::string place = place_of(key);
  if (place.empty()) return;
  const std::lock_guard lock(mu_);
  std::vector<Entry>& entries = by_place_[place];
  // Once more is no news, but whose it is by now.
  if (const auto same = std::ranges::find(entries, key, &Entry::key); same != entries.end()) {
    *same = {key, owner, made_ms};
    return;
  }
  if (entries.size() >= kMostEach) entries.erase(entries.begin());
  entries.push_back({key, owner, made_ms});
}

std::vector<std::string> Offers::take_back(const std::string& owner, int64_t until_ms) {
  const std::lock_guard lock(mu_);
  std::vector<std::string> names;
  for (auto& [place, entries] : by_place_)
    std::erase_if(entries, [&](const Entry& entry) {
      const bool is_meant = entry.owner == owner && entry.made_ms < until_ms;
      if (is_meant) names.emplace_back(name_in(entry.key));
      return is_meant;
    });
  return names;
}

std::vector<OfferedKernel> Offers::of(const Digest& workload, const Target& target) {
  const std::string place = OfferedKernel::place(workload, target);
  std::vector<std::string> keys;
  {
    const std::lock_guard lock(mu_);
    if (const auto found = by_place_.find(place); found != by_place_.end())
      for (const Entry& entry : found->second) keys.push_back(entry.key);
  }
  std::vector<OfferedKernel> offered;
  for (const std::string& key : keys) {
    std::promise<Result<KeptArtifact>> answer;
    store_.get({kOfferedKind, key}, {},
               [&answer](Result<KeptArtifact> kept) { answer.set_value(std::move(kept)); });
    const Result<KeptArtifact> kept = answer.get_future().get();
    auto parsed = kept ? offered_from_text(kept->value) : Result<OfferedKernel>(fail(kept.error()));
    if (parsed && parsed->key() == key) {
      offered.push_back(*std::move(parsed));
    } else if (kept || kept.error().code == Code::kNotFound) {
      const std::lock_guard lock(mu_);
      std::erase_if(by_place_[place], [&](const Entry& entry) { return entry.key == key; });
    }
  }
  return offered;
}

TemplateVersions Offers::without_gone(const TemplateVersions& stored,
                                      const TemplateVersions& current) {
  TemplateVersions left;
  for (const TemplateVersion& each : stored)
    if (!is_offered(each.name) || find_version(current, each.name) > 0) left.push_back(each);
  return left;
}

bool Offers::has_untried(const Program& program) const {
  if (program.mode != Mode::kMaxAutotune) return false;
  const std::lock_guard lock(mu_);
  return !by_place_.empty() &&
         std::ranges::any_of(program.kernels, [&](const ProgramKernel& kernel) {
           const auto found = by_place_.find(OfferedKernel::place(kernel.workload, program.target));
           return found != by_place_.end() &&
                  std::ranges::any_of(found->second, [&](const Entry& entry) {
                    return find_version(kernel.templates, name_in(entry.key)) == 0;
                  });
         });
}

}  // namespace kiln
