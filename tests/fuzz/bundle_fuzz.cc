// Files that people hand each other: bundles, with and without a good digest behind what they hold,
// and lock files.
#include "client/bundle.h"
#include "client/lock_file.h"
#include "compiler_core/base/check.h"
#include "tests/cache/samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

constexpr size_t kTrailerBytes = 65;

const SigningKey& key() {
  static const SigningKey one = SigningKey::generate();
  return one;
}

std::string bundle() {
  ProgramFiles files{samples::program(1), {}, program_to_json(samples::program(1)), {}};
  files.artifacts.push_back(artifact_of(files.program.kernels[0], samples::blob(1)));
  files.signature = key().sign(signed_program(files.manifest));
  return print_bundle(std::vector{std::make_shared<const ProgramFiles>(std::move(files))}).value();
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string whole = bundle();
  return {whole, whole.substr(0, whole.size() - kTrailerBytes),
          print_lock({lock_of("models/a.pt2", samples::program(2))})};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  const std::string text(fuzz::text_of(data, size));
  const std::string sealed = text + Digest::of(text).hex() + "\n";
  for (const std::string& each : {text, sealed})
    if (const auto programs = parse_bundle(each, "fuzz", fuzz::key().public_key()))
      for (const auto& files : *programs) {
        CHECK(files->program == samples::program(1), "nothing but what was signed is loaded");
        CHECK(files->artifacts.size() == 1 && files->artifacts[0].binary == samples::blob(1),
              "nor another binary");
      }
  if (const auto locked = parse_lock(text, "fuzz"))
    for (const auto& program : *locked)
      CHECK(!program.file.empty() && !program.graph.is_zero(), "what is locked has a name");
  return 0;
}
