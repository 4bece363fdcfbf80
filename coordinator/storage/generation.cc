#include "coordinator/storage/generation.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "compiler_core/base/file.h"

namespace kiln {
namespace {

constexpr int kLeaseBits = 32;

// The file: the number of the last incarnation in decimal, and a newline.
Result<uint64_t> last_incarnation(const Path& file, uint64_t wall_us) {
  const auto text = read_file(file);
  if (!text && text.error().code == Code::kNotFound) return wall_us >> kLeaseBits;
  if (!text) return fail(text.error());
  uint64_t incarnation = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), incarnation);
  const bool whole = end == text->data() + text->size() - 1 && text->back() == '\n';
  if (error != std::errc() || !whole || incarnation >= (uint64_t{1} << (63 - kLeaseBits)))
    return fail(Code::kCorruption,
                file.string() +
                    " does not hold a number; with it gone, lives are told apart by "
                    "the wall clock, which must then be right");
  return incarnation;
}

}  // namespace

Result<uint64_t> first_lease_of_next_incarnation(const Path& data_dir, uint64_t wall_us) {
  const Path file = data_dir / "generation";
  remove_unpublished(data_dir);
  TRY(const uint64_t last, last_incarnation(file, wall_us));
  const uint64_t incarnation = last + 1;
  TRY_STATUS(publish_file(file, std::to_string(incarnation) + "\n"));
  return incarnation << kLeaseBits;
}

}  // namespace kiln
