// A store's index as a broken disk may return it: rows of programs, kernels and records, and
// whatever SQLite makes of the pages around them.
#include <unistd.h>

#include "cache/audit.h"
#include "cache/index.h"
#include "compiler_core/base/check.h"
#include "tests/cache/samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

const Path& directory() {
  static const TempDir temp = TempDir::create("kiln-fuzz").value();
  return temp.path();
}

}  // namespace

std::vector<std::string> seeds() {
  const TempDir temp = TempDir::create("kiln-fuzz").value();
  {
    auto cache = KernelCache::open(temp.path()).value();
    CHECK(samples::put_all(*cache, 1) && samples::put_record(*cache, 0), "the disk takes them");
  }
  return {read_file(temp.path() / "index.sqlite").value()};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  const Path file = fuzz::directory() / "index.sqlite";
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((file.string() + suffix).c_str());
  CHECK(write_file(file, fuzz::text_of(data, size)), "the disk takes it");
  if (auto index = CacheIndex::open_for_reading(file)) {
    if (const auto row = index->program(samples::key("program", 1)))
      CHECK(program_from_json(row->manifest), "what is sealed is sound");
    (void)index->kernel(samples::key("kernel", 1));
    (void)index->records(samples::key("kernel", 0));
    (void)index->earlier_winners(samples::key("workload", 1));
  }
  (void)audit(fuzz::directory());
  return 0;
}
