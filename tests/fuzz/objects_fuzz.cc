// What an object store, or whoever stands in its place, answers: errors and lists of S3, names, and
// what an export says of itself.
#include "cache/objects/s3_answers.h"
#include "cache/transfer/store_source.h"
#include "compiler_core/base/check.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  ExportFacts facts;
  facts.parts = {{17, Digest::of(std::string_view("part"))}};
  return {
      "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>a &amp; b</Message></Error>",
      "<ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated><Contents><Key>a/b</Key><Size>7"
      "</Size><LastModified>2026-11-23T17:38:00.000Z</LastModified></Contents></ListBucketResult>",
      facts.to_text(), "blobs/ab/abcd.17"};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  const std::string_view text = fuzz::text_of(data, size);
  for (const int status : {301, 403, 404, 500}) {
    const HttpResponse response{
        status, {{"date", std::string(text.substr(0, 40))}}, std::string(text)};
    const S3Failure failure = read_failure(response, "bucket", "key", 0);
    CHECK(!failure.error.message.empty(), "an error has a sentence");
    CHECK(failure.is_absence == (failure.error.code == Code::kNotFound), "an absence is a fact");
    for (const char c : failure.error.message) CHECK(c >= ' ' && c <= '~', "for a terminal");
  }
  if (const auto listing = read_listing(text))
    for (const ObjectInfo& object : listing->objects)
      if (check_object_name(object.name))
        CHECK(object.name.find("..") != 0 && object.name[0] != '/', "a name stays in its folder");
  if (const auto facts = ExportFacts::parse(text))
    CHECK(ExportFacts::parse(facts->to_text()).value() == *facts, "as it was printed");
  return 0;
}
