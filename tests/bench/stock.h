// Stock: the programs that a load generator asks a coordinator for, as a scripted worker tuned
// them, and the questions about them.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/passes/normalise.h"
#include "schema/keys/key_file.h"
#include "tests/bench/dialogue.h"
#include "tests/bench/servers.h"

namespace kiln::bench {

struct Stock {
  std::vector<NormalForm> graphs;
  std::vector<std::string> manifests;
  std::vector<Digest> blobs;
  size_t manifest_bytes() const { return manifests.front().size(); }
};

constexpr size_t kBlobBytes = 16 << 10;  // a program has one

// Has a coordinator tune them.
Stock fill(const std::string& endpoint);

// A question a program. `framed`: as a connection without keys sends them.
KilnQuestions look_ups(const Stock& stock, bool framed = true);
KilnQuestions blob_fetches(const Stock& stock);

// A coordinator's directory with a stock in it, from a life that was killed, and a key that may
// look it up.
struct StockedDirectory {
  explicit StockedDirectory(const Path& directory);
  Server start(bool keys) const;

  Path directory;
  Stock stock;
  ClientKey key;
};

}  // namespace kiln::bench
