// Pt2Archive: the zip file that torch.export.save writes: one top folder with
//   models/model.json                       the graph
//   data/weights/model_weights_config.json  which file holds which parameter, and the files
//   data/constants/...                      the same for constants and non-persistent buffers
//   byteorder                               "little"
// Every size is checked against a bound before anything is allocated, so that a small hostile file
// cannot ask for much memory. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "compiler_core/base/file.h"

struct zip;

namespace kiln {

class Pt2Archive {
 public:
  // kNotFound when there is no such file; kInvalidArgument when it is empty, truncated, no zip, no
  // torch.export archive, or written on a big-endian machine.
  static Result<Pt2Archive> open(const Path& path);
  // The same of an archive in memory, which outlives the Pt2Archive.
  static Result<Pt2Archive> of_bytes(std::string_view bytes);

  // `name` is relative to the top folder: "models/model.json".
  bool contains(const std::string& name) const;
  // Bytes uncompressed. kNotFound when there is no such entry, kInvalidArgument when it claims more
  // than the file can hold.
  Result<int64_t> size_of(const std::string& name) const;
  // A text entry. With `padding` extra zero bytes reserved behind it, for parsers that read ahead.
  Result<std::string> read_text(const std::string& name, size_t padding = 0) const;
  // `size` bytes from `offset` of an entry into `into`.
  Status read_bytes(const std::string& name, int64_t offset, void* into, int64_t size) const;

 private:
  // Finds the folder and checks the byte order. `path` names the archive in errors.
  static Result<Pt2Archive> opened(zip* archive, const Path& path, uint64_t file_size);
  struct Close {
    void operator()(zip* archive) const;
  };
  Pt2Archive(std::unique_ptr<zip, Close> archive, std::string folder, uint64_t file_size)
      : archive_(std::move(archive)), folder_(std::move(folder)), file_size_(file_size) {}

  std::unique_ptr<zip, Close> archive_;
  std::string folder_;  // "linear/"
  uint64_t file_size_;
};

}  // namespace kiln
