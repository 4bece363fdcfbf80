#include "compiler_core/frontend/pt2_archive.h"

#include <zip.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "compiler_core/frontend/other_formats.h"

namespace kiln {
namespace {

constexpr std::string_view kModel = "models/model.json";
// The largest model seen is 2 MB for 1,100 nodes; this leaves two orders of magnitude.
constexpr int64_t kMaxTextBytes = int64_t{256} << 20;
// Deflate cannot compress better than 1032:1; an entry that claims more is lying.
constexpr uint64_t kMaxRatio = 1100;
constexpr int64_t kMaxEntries = 1 << 20;
// Bounds on reading an archive that is something else, to say what it is.
constexpr size_t kHeadBytes = 64 << 10, kMostNames = 1000;

tl::unexpected<Error> invalid_archive(std::string message) {
  return fail(Code::kInvalidArgument, std::move(message));
}

struct CloseEntry {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

// Why libzip would not open `path`, said to a person.
tl::unexpected<Error> open_error(const Path& path, int code) {
  std::error_code ignored;
  if (code == ZIP_ER_NOENT) return fail(Code::kNotFound, "no file " + path.string());
  if (std::filesystem::is_directory(path, ignored))
    return invalid_archive(path.string() + " is a directory; give a .pt2 file");
  std::array<char, 64> head{};
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Code::kPermissionDenied, "cannot open " + path.string() + " for reading");
  file.read(head.data(), head.size());
  if (file.gcount() == 0)
    return invalid_archive(path.string() + " is empty; write it again with torch.export.save");
  if (head[0] == 'P' && head[1] == 'K')
    return invalid_archive(path.string() +
                           " is a truncated or damaged zip archive; copy or export it again");
  return invalid_archive(path.string() +
                         describe_other_file({head.data(), static_cast<size_t>(file.gcount())}));
}

// The beginning of the entry `index`.
std::string beginning(zip_t* archive, zip_uint64_t index) {
  const std::unique_ptr<zip_file_t, CloseEntry> file(zip_fopen_index(archive, index, 0));
  std::string text(kHeadBytes, '\0');
  const zip_int64_t got = file ? zip_fread(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<size_t>(std::max<zip_int64_t>(got, 0)));
  return text;
}

// The one folder that holds models/model.json, with its slash.
Result<std::string> find_folder(zip_t* archive, const Path& path) {
  const int64_t count = zip_get_num_entries(archive, 0);
  if (count > kMaxEntries)
    return invalid_archive(path.string() + " has " + std::to_string(count) +
                           " entries, more than " + std::to_string(kMaxEntries));
  std::vector<std::string> names;  // the first of them, for an error
  std::string pickle;
  for (int64_t i = 0; i < count; ++i) {
    const char* raw = zip_get_name(archive, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
    if (raw == nullptr) continue;
    const std::string_view name = raw;
    if (names.size() < kMostNames) names.emplace_back(name);
    if (pickle.empty() && name.ends_with("data.pkl"))
      pickle = beginning(archive, static_cast<zip_uint64_t>(i));
    if (!name.ends_with(kModel)) continue;
    const std::string_view folder = name.substr(0, name.size() - kModel.size());
    if (folder.empty() || folder.find('/') == folder.size() - 1) return std::string(folder);
  }
  return invalid_archive(path.string() + describe_other_archive(names, pickle));
}

}  // namespace

void Pt2Archive::Close::operator()(zip* archive) const {
  zip_discard(archive);
}

Result<Pt2Archive> Pt2Archive::open(const Path& path) {
  int code = 0;
  std::unique_ptr<zip, Close> zip_file(zip_open(path.c_str(), ZIP_RDONLY, &code));
  // libzip takes an empty file for an empty archive.
  if (!zip_file || zip_get_num_entries(zip_file.get(), 0) <= 0)
    return open_error(path, zip_file ? ZIP_ER_NOZIP : code);
  std::error_code error;
  const uint64_t file_size = std::filesystem::file_size(path, error);
  if (error) return fail(Code::kNotFound, "cannot read " + path.string() + ": " + error.message());
  return opened(zip_file.release(), path, file_size);
}

Result<Pt2Archive> Pt2Archive::of_bytes(std::string_view bytes) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  zip_t* archive = source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, &error);
  if (archive == nullptr && source != nullptr) zip_source_free(source);
  zip_error_fini(&error);
  if (archive == nullptr || zip_get_num_entries(archive, 0) <= 0) {
    if (archive != nullptr) zip_discard(archive);
    return invalid_archive("not a zip archive, or a truncated or damaged one");
  }
  return opened(archive, "the archive", bytes.size());
}

Result<Pt2Archive> Pt2Archive::opened(zip* opened_zip, const Path& path, uint64_t file_size) {
  std::unique_ptr<zip, Close> zip_file(opened_zip);
  TRY(std::string folder, find_folder(zip_file.get(), path));
  Pt2Archive archive(std::move(zip_file), std::move(folder), file_size);
  if (archive.contains("byteorder")) {
    TRY(const std::string order, archive.read_text("byteorder"));
    if (order != "little")
      return invalid_archive(path.string() + " was written with byte order '" +
                             order.substr(0, 16) + "'; export it on a little-endian machine");
  }
  return archive;
}

bool Pt2Archive::contains(const std::string& name) const {
  return zip_name_locate(archive_.get(), (folder_ + name).c_str(), ZIP_FL_ENC_RAW) >= 0;
}

Result<int64_t> Pt2Archive::size_of(const std::string& name) const {
  zip_stat_t stat;
  zip_stat_init(&stat);
  const std::string full = folder_ + name;
  if (zip_stat(archive_.get(), full.c_str(), ZIP_FL_ENC_RAW, &stat) != 0 ||
      (stat.valid & ZIP_STAT_SIZE) == 0 || (stat.valid & ZIP_STAT_COMP_SIZE) == 0)
    return fail(Code::kNotFound, "the archive has no entry " + full);
  if (stat.comp_size > file_size_ || stat.size / kMaxRatio > stat.comp_size + 1)
    return invalid_archive("entry " + full + " of the archive claims " + std::to_string(stat.size) +
                           " bytes, more than its file can hold");
  return static_cast<int64_t>(stat.size);
}

Status Pt2Archive::read_bytes(const std::string& name, int64_t offset, void* into,
                              int64_t size) const {
  const std::string full = folder_ + name;
  const auto damaged = [&](std::string_view why) {
    return invalid_archive("entry " + full + " of the archive " + std::string(why));
  };
  std::unique_ptr<zip_file_t, CloseEntry> file(
      zip_fopen(archive_.get(), full.c_str(), ZIP_FL_ENC_RAW));
  if (!file) {
    const int code = zip_error_code_zip(zip_get_error(archive_.get()));
    if (code == ZIP_ER_NOENT) return fail(Code::kNotFound, "the archive has no entry " + full);
    return damaged(std::string("cannot be read: ") + zip_strerror(archive_.get()));
  }
  const auto read_exactly = [&](char* to, int64_t wanted) {
    while (wanted > 0) {
      const int64_t got = zip_fread(file.get(), to, static_cast<zip_uint64_t>(wanted));
      if (got <= 0) return false;
      to += got;
      wanted -= got;
    }
    return true;
  };
  std::array<char, 65536> skipped;
  for (int64_t left = offset; left > 0;) {
    const int64_t piece = std::min<int64_t>(left, skipped.size());
    if (!read_exactly(skipped.data(), piece)) return damaged("is truncated or damaged");
    left -= piece;
  }
  if (!read_exactly(static_cast<char*>(into), size)) return damaged("is truncated or damaged");
  // libzip compares the checksum when it meets the end, and only then.
  char beyond = 0;
  TRY(const int64_t total, size_of(name));
  if (offset + size == total && zip_fread(file.get(), &beyond, 1) != 0)
    return damaged("does not match its checksum or size; copy or export the file again");
  return {};
}

Result<std::string> Pt2Archive::read_text(const std::string& name, size_t padding) const {
  TRY(const int64_t size, size_of(name));
  if (size > kMaxTextBytes)
    return invalid_archive("entry " + folder_ + name + " of the archive has " +
                           std::to_string(size) + " bytes, more than the " +
                           std::to_string(kMaxTextBytes) + " that Kiln reads");
  std::string text;
  text.reserve(static_cast<size_t>(size) + padding);
  text.resize(static_cast<size_t>(size));
  TRY_STATUS(read_bytes(name, 0, text.data(), size));
  return text;
}

}  // namespace kiln
