// FolderObjects: an ObjectStore whose objects are the files below a folder, as on one machine's
// disk or a network file system. Answers on the caller's thread, before the call returns.
//
// The folder has a mark, the file `.kiln-objects`: a folder without it is another, such as the
// mount point of a disk that is away, and what it lacks is no fact. It is then kUnavailable.
#pragma once

#include "cache/objects/object_store.h"
#include "compiler_core/base/file.h"

namespace kiln {

class FolderObjects final : public ObjectStore {
 public:
  // Makes the folder, and marks it, if it is missing or empty. kInvalidArgument: it has other
  // files; kUnavailable: it cannot be made.
  static Result<std::unique_ptr<ObjectStore>> open(Path root);

  void put(std::string name, std::string bytes, Then<void> done) override;
  void get(std::string name, Then<std::string> done) override;
  void remove(std::string name, Then<void> done) override;
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override;
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override;
  int64_t max_object_bytes() const override { return int64_t{1} << 30; }
  std::string describe() const override { return "folder " + root_.string(); }

 private:
  explicit FolderObjects(Path root) : root_(std::move(root)) {}
  Status write(const std::string& name, std::string_view bytes) const;
  Result<std::string> read(const std::string& name) const;
  Status erase(const std::string& name) const;
  Result<std::vector<ObjectInfo>> page(const std::string& after, size_t limit) const;
  // Adds what lies in `folder` (a prefix of names: "" or "a/b/") after `after`, in order.
  Status add(const std::string& folder, const std::string& after, size_t limit,
             std::vector<ObjectInfo>& objects) const;
  Status check_mark() const;

  const Path root_;
};

}  // namespace kiln
