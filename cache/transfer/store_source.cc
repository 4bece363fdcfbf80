#include "cache/transfer/store_source.h"

#include <fmt/format.h>

#include <fstream>

#include "cache/blob_store.h"
#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "kiln-export ";
constexpr int64_t kFormat = 1;
constexpr int kReadAhead = 64;  // binaries

Result<std::string> checked(Result<std::string> bytes, const Digest& digest) {
  if (bytes && Digest::of(*bytes) != digest)
    return fail(Code::kCorruption, "blob " + digest.short_hex() + " is damaged");
  return bytes;
}

// The bytes are gone for good; else the disk or the network fails, which says nothing of them.
bool is_lost(const Error& error) {
  return error.code == Code::kNotFound || error.code == Code::kCorruption;
}

}  // namespace

std::string export_blob_name(const Digest& digest) {
  const std::string hex = digest.hex();
  return "blobs/" + hex.substr(0, 2) + "/" + hex;
}

std::string export_part_name(const Digest& digest) {
  return "index/" + digest.hex();
}

std::string ExportFacts::to_text() const {
  std::string text = fmt::format("{}{}\n", kMagic, kFormat);
  for (const Part& part : parts) text += fmt::format("part {} {}\n", part.bytes, part.digest.hex());
  return text + fmt::format(
                    "programs {}\nkernels {}\nblobs {}\nrecords {}\nblob_bytes {}\n"
                    "missing_blobs {}\n",
                    programs, kernels, blobs, records, blob_bytes, missing_blobs);
}

Result<ExportFacts> ExportFacts::parse(std::string_view text) {
  const auto none = [] { return fail(Code::kInvalidArgument, "this is no export of Kiln's"); };
  int64_t format = 0;
  std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with(kMagic) || !read_count(line.substr(kMagic.size()), format)) return none();
  if (format > kFormat)
    return fail(Code::kUnsupported,
                fmt::format("the export has format {}, which a newer Kiln wrote; this one reads up "
                            "to {}: update it",
                            format, kFormat));
  ExportFacts facts;
  for (text.remove_prefix(line.size()); text.size() > 1;) {
    text.remove_prefix(1);
    line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size());
    const std::string_view name = take_word(line);
    bool good = true;
    if (name == "part") {
      Part& part = facts.parts.emplace_back();
      good = read_count(take_word(line), part.bytes);
      TRY(part.digest, Digest::parse(line));
    } else if (name == "programs") {
      good = read_count(line, facts.programs);
    } else if (name == "kernels") {
      good = read_count(line, facts.kernels);
    } else if (name == "blobs") {
      good = read_count(line, facts.blobs);
    } else if (name == "records") {
      good = read_count(line, facts.records);
    } else if (name == "blob_bytes") {
      good = read_count(line, facts.blob_bytes);
    } else if (name == "missing_blobs") {
      good = read_count(line, facts.missing_blobs);
    }
    if (!good) return none();
  }
  if (facts.parts.empty()) return none();
  return facts;
}

// Opened for writing, since that brings an index of an older version up to date; it is ours alone.
Status StoreSource::open_index() {
  TRY(CacheIndex index, CacheIndex::open_for_writing(index_file_));
  index_ = std::make_unique<CacheIndex>(std::move(index));
  return index_->check();
}

Result<StoreSource> StoreSource::of_directory(const Path& directory) {
  const Path file = directory / "index.sqlite";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return fail(Code::kNotFound, directory.string() + " holds no store; name one with --data-dir");
  TRY(TempDir scratch, TempDir::create("kiln-transfer"));
  StoreSource source(std::move(scratch));
  {
    TRY(CacheIndex live, CacheIndex::open_for_reading(file));
    TRY_STATUS(live.copy_to(source.index_file_));
  }
  source.blob_folder_ = directory / "blobs";
  TRY_STATUS(source.open_index());
  return source;
}

Result<StoreSource> StoreSource::of_export(std::unique_ptr<ObjectStore> objects) {
  const auto get = [&](const std::string& name) {
    return wait_for_answer<std::string>([&](auto then) { objects->get(name, then); });
  };
  const auto text = get(kExportName);
  if (!text && text.error().code == Code::kNotFound)
    return fail(Code::kNotFound,
                objects->describe() + " holds no export: `kiln cache export` writes one");
  if (!text) return fail(text.error());
  TRY(const ExportFacts facts, ExportFacts::parse(*text));
  TRY(TempDir scratch, TempDir::create("kiln-transfer"));
  StoreSource source(std::move(scratch));
  {
    std::ofstream file(source.index_file_, std::ios::binary);
    for (const ExportFacts::Part& part : facts.parts) {
      TRY(const std::string bytes, get(export_part_name(part.digest)));
      if (Digest::of(bytes) != part.digest)
        return fail(Code::kCorruption,
                    objects->describe() + ": a part of the index is another than the export says");
      file << bytes;
    }
    file.flush();
    if (!file)
      return fail(Code::kUnavailable,
                  "no space for the index under " + source.index_file_.string());
  }
  source.objects_ = std::move(objects);
  source.names_ = [](std::span<const Digest> digests) -> Result<Names> {
    Names names;
    for (const Digest& digest : digests) names[digest] = export_blob_name(digest);
    return names;
  };
  TRY_STATUS(source.open_index());
  return source;
}

Result<StoreSource> StoreSource::open(const std::string& place, const ObjectStoreOptions& options) {
  std::error_code ignored;
  if (std::filesystem::exists(Path(place) / "index.sqlite", ignored)) return of_directory(place);
  const bool is_folder = place.find("://") == std::string::npos;
  if (is_folder && !std::filesystem::exists(Path(place) / kExportName, ignored))
    return fail(Code::kNotFound, place + " is neither a data directory nor an export");
  TRY(auto objects, open_objects(place, options));
  return of_export(std::move(objects));
}

std::vector<Result<std::string>> StoreSource::blobs(std::span<const Digest> digests) {
  std::vector<Result<std::string>> all;
  if (objects_ == nullptr) {
    for (const Digest& digest : digests)
      all.push_back(checked(read_file(BlobStore::path_of(blob_folder_, digest)), digest));
    return all;
  }
  const Result<Names> names = names_(digests);
  if (!names) return {digests.size(), fail(names.error())};
  std::vector<std::future<Result<std::string>>> coming;
  for (const Digest& digest : digests) {
    auto promise = std::make_shared<std::promise<Result<std::string>>>();
    coming.push_back(promise->get_future());
    const auto answer = [promise](Result<std::string> bytes) {
      promise->set_value(std::move(bytes));
    };
    if (const auto name = names->find(digest); name != names->end())
      objects_->get(name->second, answer);
    else
      answer(fail(Code::kNotFound, "blob " + digest.short_hex() + " is gone"));
  }
  for (size_t i = 0; i < coming.size(); ++i) all.push_back(checked(coming[i].get(), digests[i]));
  return all;
}

Result<std::set<Digest>> StoreSource::each_blob(const TransferProgress& progress,
                                                const TakeBlob& take) {
  TRY(const IndexTotals totals, index_->totals());
  std::set<Digest> lost;
  int64_t seen = 0;
  for (Digest after;;) {
    TRY(const std::vector<Entry> page, index_->entries(EntryKind::kBlob, after, kReadAhead));
    if (page.empty()) return lost;
    std::vector<Digest> digests;
    for (const Entry& entry : page) digests.push_back(entry.id.key);
    std::vector<Result<std::string>> all = blobs(digests);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i])
        TRY_STATUS(take(digests[i], *std::move(all[i])));
      else if (is_lost(all[i].error()))
        lost.insert(digests[i]);
      else
        return fail(all[i].error());
    }
    after = page.back().id.key;
    seen += static_cast<int64_t>(page.size());
    if (progress) progress(seen, totals.blobs);
  }
}

}  // namespace kiln
