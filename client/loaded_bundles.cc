#include "client/loaded_bundles.h"

#include "compiler_core/base/own_directory.h"

namespace kiln {

Result<int> LoadedBundles::load(const Path& file, std::string_view signer) {
  TRY(const std::string text, read_bundle(file));
  return add(text, file.string(), signer);
}

Result<int> LoadedBundles::add(std::string_view text, const std::string& name,
                               std::string_view signer) {
  TRY(const Programs programs, parse_bundle(text, name, signer.empty() ? signer_ : signer));
  const std::scoped_lock lock(mu_);
  loaded_.insert(loaded_.end(), programs.begin(), programs.end());
  return static_cast<int>(programs.size());
}

std::shared_ptr<const ProgramFiles> LoadedBundles::find(const Digest& graph, const Target& wanted,
                                                        Mode mode) {
  const std::scoped_lock lock(mu_);
  return find_in_bundle(loaded_, graph, wanted, mode);
}

std::shared_ptr<const ProgramFiles> LoadedBundles::find_in_tier(
    const Digest& graph, const Target& wanted, Mode mode,
    const std::function<void(const std::string&)>& say) {
  if (folder_.empty()) return nullptr;
  std::call_once(tier_read_, [&] { read_tier(say); });
  return find_in_bundle(in_tier_, graph, wanted, mode);
}

// A bundle is code, and the .pub beside it says whose: both count only where nobody else can write.
void LoadedBundles::read_tier(const std::function<void(const std::string&)>& say) {
  std::error_code none;
  if (!std::filesystem::is_directory(folder_, none)) return;
  const auto add = [this](const Path& file) -> Status {
    TRY(const std::string text, read_bundle(file));
    std::string trusted = signer_;
    if (trusted.empty()) {
      TRY(const std::string hex, read_file(Path(file).replace_extension(".pub")));
      TRY(trusted, parse_public_key(first_line(hex)));
    }
    TRY(const Programs programs, parse_bundle(text, file.string(), trusted));
    in_tier_.insert(in_tier_.end(), programs.begin(), programs.end());
    return {};
  };
  Status good = check_ours(folder_);
  if (!good && say) say(good.error().message);
  if (!good) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
    if (entry.path().extension() != ".kiln") continue;
    good = add(entry.path());
    if (!good && say) say(good.error().message);
  }
}

Status LoadedBundles::install(const Path& tier, std::string_view text, std::string_view signer) {
  const Path folder = tier / "bundles";
  TRY_STATUS(make_directories(folder));
  for (const Path& each : {tier, folder}) TRY_STATUS(check_ours(each));
  const std::string name = Digest::of(text).hex();
  TRY_STATUS(publish_file(folder / (name + ".pub"), to_hex(signer) + "\n"));
  return publish_file(folder / (name + ".kiln"), text);
}

}  // namespace kiln
