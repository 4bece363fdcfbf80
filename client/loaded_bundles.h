// LoadedBundles: the programs that a client has from bundles (bundle.h): those it was given, and
// those that `kiln load --cache-dir` put beside its local tier, in <tier>/bundles: <digest>.kiln, and
// <digest>.pub, the public key that was trusted then, in hex. Thread-safe.
#pragma once

#include <functional>
#include <mutex>

#include "client/bundle.h"

namespace kiln {

class LoadedBundles {
 public:
  // `tier`: the local tier's folder; empty: none. `signer`: the public key that programs must be
  // signed with; empty: the one that each bundle is loaded with.
  LoadedBundles(const Path& tier, std::string signer)
      : folder_(tier.empty() ? tier : tier / "bundles"), signer_(std::move(signer)) {}

  // How many programs the bundle has. `signer`: empty for the constructor's. Errors as
  // parse_bundle(); kNotFound: no such file.
  Result<int> load(const Path& file, std::string_view signer);
  // The same of a bundle's text; `name` as parse_bundle() has it.
  Result<int> add(std::string_view text, const std::string& name, std::string_view signer);

  // Asks nobody. Null: no bundle that was loaded has the program.
  std::shared_ptr<const ProgramFiles> find(const Digest& graph, const Target& wanted, Mode mode);
  // The same of those beside the tier, which the first call reads. Says what is wrong with one.
  std::shared_ptr<const ProgramFiles> find_in_tier(
      const Digest& graph, const Target& wanted, Mode mode,
      const std::function<void(const std::string&)>& say);

  // Puts a bundle beside the tier in `tier`, which is made if there is none. REQUIRES: parse_bundle()
  // took `text` with `signer`. kPermissionDenied: the folder is another user's, or others may write
  // there; errors of the disk.
  static Status install(const Path& tier, std::string_view text, std::string_view signer);

 private:
  using Programs = std::vector<std::shared_ptr<const ProgramFiles>>;
  void read_tier(const std::function<void(const std::string&)>& say);

  const Path folder_;
  const std::string signer_;
  std::once_flag tier_read_;
  Programs in_tier_;  // constant after it was read

  std::mutex mu_;
  Programs loaded_;  // guarded by mu_
};

}  // namespace kiln
