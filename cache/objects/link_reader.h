// LinkReader: reads what links to an object store lead to (ObjectStore::link), without credentials of
// its own. Nothing that comes is taken on trust: no redirect is followed, bodies are bounded, and who
// asks checks each against its digest. Thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cache/objects/http_client.h"

namespace kiln {

class LinkReader {
 public:
  // `ca_file`: whose certificates are good; empty: the system's. No body is larger than `most_bytes`.
  LinkReader(const std::string& ca_file, int64_t most_bytes);

  // The bytes at each URL, in order, or why there are none: kUnavailable, also for an answer that is
  // no success; as HttpClient. Waits until all are there or `timeout` is over.
  std::vector<Result<std::string>> read(const std::vector<std::string>& urls,
                                        std::chrono::milliseconds timeout);

 private:
  const int64_t most_bytes_;
  HttpClient client_;
};

}  // namespace kiln
