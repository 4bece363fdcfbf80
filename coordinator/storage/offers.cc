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

Status Offers::read() {
  TRY(auto listed, table_.list_offers());
  for (ListedOffer& each : listed) added(std::move(each));
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

void Offers::added(ListedOffer offer) {
  const std::string place = place_of(offer.key);
  if (place.empty()) return;
  const std::lock_guard lock(mu_);
  for (auto& [owner, names] : taken_back_) names.erase(std::string(name_in(offer.key)));
  std::vector<ListedOffer>& offers = by_place_[place];
  // Once more is no news, but whose it is by now.
  if (const auto same = std::ranges::find(offers, offer.key, &ListedOffer::key);
      same != offers.end()) {
    *same = std::move(offer);
    return;
  }
  if (offers.size() >= OfferTable::kMostEach) offers.erase(offers.begin());
  offers.push_back(std::move(offer));
}

void Offers::put(ListedOffer offer, std::string text, OfferTable::Done done) {
  offer.bytes = std::ssize(text);
  table_.put_offer(offer, std::move(text),
                   [this, offer, done = std::move(done)](const Status& status) {
                     if (status) added(offer);
                     done(status);
                   });
}

void Offers::get(const std::string& key, OfferTable::Got got) {
  table_.look_up_offer(key, [key, got = std::move(got)](Result<std::string> text) {
    const auto offered = text ? offered_from_text(*text) : fail(text.error());
    if (text && (!offered || offered->key() != key))
      return got(fail(Code::kNotFound, "the offered kernel of this key is damaged"));
    got(std::move(text));
  });
}

std::vector<std::string> Offers::take_back(const std::string& owner, int64_t until_ms) {
  const std::lock_guard lock(mu_);
  std::set<std::string> names;
  for (auto& [place, offers] : by_place_)
    std::erase_if(offers, [&](const ListedOffer& offer) {
      const bool is_meant = offer.owner == owner && offer.made_ms < until_ms;
      if (is_meant) names.emplace(name_in(offer.key));
      return is_meant;
    });
  if (const auto before = taken_back_.find(owner); before != taken_back_.end())
    names.insert(before->second.begin(), before->second.end());
  if (!names.empty()) taken_back_[owner] = names;
  return {names.begin(), names.end()};
}

void Offers::was_taken_back(const std::string& owner, int64_t until_ms) {
  table_.remove_offers(owner, until_ms, [](const Status&) {});
}

bool Offers::is_taken_back(const std::string& template_name) const {
  if (!is_offered(template_name)) return false;
  const std::lock_guard lock(mu_);
  return std::ranges::any_of(taken_back_,
                             [&](const auto& each) { return each.second.contains(template_name); });
}

Offers::Shared Offers::shared() const {
  Shared all;
  if (!table_.is_shared()) return all;
  const std::lock_guard lock(mu_);
  for (const auto& [place, offers] : by_place_)
    for (const ListedOffer& offer : offers) {
      ++all.entries;
      all.bytes += offer.bytes;
    }
  return all;
}

std::vector<OfferedKernel> Offers::of(const Digest& workload, const Target& target) {
  const std::string place = OfferedKernel::place(workload, target);
  std::vector<std::string> keys;
  {
    const std::lock_guard lock(mu_);
    if (const auto found = by_place_.find(place); found != by_place_.end())
      for (const ListedOffer& offer : found->second) keys.push_back(offer.key);
  }
  std::vector<OfferedKernel> offered;
  for (const std::string& key : keys) {
    std::promise<Result<std::string>> answer;
    get(key, [&answer](Result<std::string> text) { answer.set_value(std::move(text)); });
    const Result<std::string> text = answer.get_future().get();
    if (text) {
      offered.push_back(*offered_from_text(*text));
    } else if (text.error().code == Code::kNotFound) {
      const std::lock_guard lock(mu_);
      std::erase_if(by_place_[place], [&](const ListedOffer& offer) { return offer.key == key; });
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
                  std::ranges::any_of(found->second, [&](const ListedOffer& offer) {
                    return find_version(kernel.templates, name_in(offer.key)) == 0;
                  });
         });
}

}  // namespace kiln
