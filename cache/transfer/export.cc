#include <fmt/format.h>

#include <fstream>
#include <random>
#include <unordered_map>

#include "cache/transfer/transfer.h"

namespace kiln {
namespace {

constexpr int kPage = 64;  // binaries at once
constexpr int64_t kPartBytes = int64_t{64} << 20;
constexpr size_t kSample = 100;

using Sizes = std::unordered_map<std::string, int64_t>;

Status put(ObjectStore& to, std::string name, std::string bytes) {
  return wait_for_answer<void>([&](auto then) { to.put(std::move(name), std::move(bytes), then); });
}
Result<std::string> get(ObjectStore& from, const std::string& name) {
  return wait_for_answer<std::string>([&](auto then) { from.get(name, then); });
}

Result<Sizes> sizes_of(ObjectStore& store) {
  Sizes sizes;
  for (std::string after;;) {
    TRY(const std::vector<ObjectInfo> page,
        wait_for_answer<std::vector<ObjectInfo>>(
            [&](auto then) { store.list(after, ObjectStore::kMaxListed, then); }));
    for (const ObjectInfo& object : page) sizes[object.name] = object.bytes;
    if (page.size() < static_cast<size_t>(ObjectStore::kMaxListed)) return sizes;
    after = page.back().name;
  }
}

class Exporter {
 public:
  Exporter(StoreSource& source, ObjectStore& to, const TransferProgress& progress)
      : source_(source), to_(to), progress_(progress) {}

  Result<Exported> run() {
    TRY(const IndexTotals totals, source_.index().totals());
    done_.facts.programs = totals.programs;
    done_.facts.kernels = totals.kernels;
    done_.facts.records = totals.records;
    total_ = totals.blobs;
    TRY(present_, sizes_of(to_));
    TRY_STATUS(write_blobs());
    TRY_STATUS(write_index());
    TRY_STATUS(read_back());
    TRY_STATUS(put(to_, kExportName, done_.facts.to_text()));
    remove_other_parts();
    return done_;
  }

 private:
  Status write_blobs() {
    for (Digest after;;) {
      TRY(const std::vector<Entry> page, source_.index().entries(EntryKind::kBlob, after, kPage));
      if (page.empty()) return {};
      std::vector<Digest> wanted;
      for (const Entry& entry : page) {
        const auto there = present_.find(export_blob_name(entry.id.key));
        if (there != present_.end() && there->second == entry.bytes)
          count(entry.id.key, entry.bytes);
        else
          wanted.push_back(entry.id.key);
      }
      TRY_STATUS(write(wanted));
      after = page.back().id.key;
      seen_ += static_cast<int64_t>(page.size());
      if (progress_) progress_(seen_, total_);
    }
  }

  void count(const Digest& digest, int64_t bytes) {
    ++done_.facts.blobs;
    done_.facts.blob_bytes += bytes;
    // Each has the same chance to be in the sample, however many there are.
    const auto place = std::uniform_int_distribution<int64_t>(0, done_.facts.blobs - 1)(random_);
    if (sample_.size() < kSample)
      sample_.push_back(digest);
    else if (place < static_cast<int64_t>(kSample))
      sample_[static_cast<size_t>(place)] = digest;
  }

  Status write(const std::vector<Digest>& digests) {
    std::vector<Result<std::string>> all = source_.blobs(digests);
    std::vector<std::future<Status>> writing;
    for (size_t i = 0; i < digests.size(); ++i) {
      if (!all[i]) {
        // Evicted since, or damaged; a disk that fails is another matter.
        const Code code = all[i].error().code;
        if (code != Code::kNotFound && code != Code::kCorruption) return fail(all[i].error());
        ++done_.facts.missing_blobs;
        continue;
      }
      const auto bytes = static_cast<int64_t>(all[i]->size());
      count(digests[i], bytes);
      ++done_.written_blobs;
      done_.written_bytes += bytes;
      auto answer = std::make_shared<std::promise<Status>>();
      writing.push_back(answer->get_future());
      to_.put(export_blob_name(digests[i]), *std::move(all[i]),
              [answer](Status status) { answer->set_value(std::move(status)); });
    }
    Status written;
    for (auto& each : writing)
      if (Status one = each.get(); !one && written) written = std::move(one);
    return written;
  }

  Status write_index() {
    std::ifstream file(source_.index_file(), std::ios::binary);
    while (file) {
      std::string bytes(static_cast<size_t>(std::min(kPartBytes, to_.max_object_bytes())), '\0');
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      bytes.resize(static_cast<size_t>(file.gcount()));
      if (bytes.empty()) break;
      const Digest digest = Digest::of(bytes);
      done_.facts.parts.push_back({static_cast<int64_t>(bytes.size()), digest});
      TRY_STATUS(put(to_, export_part_name(digest), std::move(bytes)));
    }
    if (!file.eof())
      return fail(Code::kUnavailable, "cannot read " + source_.index_file().string());
    return {};
  }

  // The whole index, a sample of the binaries, and how many binaries are there, of which size.
  Status read_back() {
    const auto wrong = [&](const std::string& name) {
      return fail(Code::kCorruption, to_.describe() + " gives back other bytes of " + name +
                                         " than were written: the export is not good");
    };
    for (const ExportFacts::Part& part : done_.facts.parts) {
      TRY(const std::string bytes, get(to_, export_part_name(part.digest)));
      if (Digest::of(bytes) != part.digest) return wrong(export_part_name(part.digest));
    }
    for (const Digest& digest : sample_) {
      TRY(const std::string bytes, get(to_, export_blob_name(digest)));
      if (Digest::of(bytes) != digest) return wrong(export_blob_name(digest));
      ++done_.read_back;
    }
    TRY(present_, sizes_of(to_));
    int64_t there = 0;
    for (Digest after;;) {
      TRY(const std::vector<Entry> page, source_.index().entries(EntryKind::kBlob, after, 1000));
      if (page.empty()) break;
      for (const Entry& entry : page) {
        const auto found = present_.find(export_blob_name(entry.id.key));
        if (found != present_.end() && found->second == entry.bytes) ++there;
      }
      after = page.back().id.key;
    }
    if (there == done_.facts.blobs) return {};
    return fail(Code::kCorruption,
                fmt::format("{} lists {} of the {} binaries: the export is not good",
                            to_.describe(), there, done_.facts.blobs));
  }

  // Removes the parts of an earlier export's index. One that stays is garbage, and does no harm.
  void remove_other_parts() {
    std::unordered_map<std::string, bool> ours;
    for (const ExportFacts::Part& part : done_.facts.parts)
      ours[export_part_name(part.digest)] = true;
    for (const auto& [name, bytes] : present_)
      if (name.starts_with("index/") && !ours.contains(name))
        (void)wait_for_answer<void>([&, &part = name](auto then) { to_.remove(part, then); });
  }

  StoreSource& source_;
  ObjectStore& to_;
  const TransferProgress& progress_;
  std::minstd_rand random_{std::random_device{}()};
  Sizes present_;
  std::vector<Digest> sample_;
  Exported done_;
  int64_t seen_ = 0, total_ = 0;
};

}  // namespace

Result<Exported> export_store(StoreSource& source, ObjectStore& to,
                              const TransferProgress& progress) {
  return Exporter(source, to, progress).run();
}

}  // namespace kiln
