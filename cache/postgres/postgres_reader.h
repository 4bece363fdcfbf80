// PostgresReader: a PostgresStore as a coordinator sees it that does not lead: it looks up, and writes
// nothing but when programs were last used. It needs no term, and any number may be open beside the
// one that writes. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "cache/objects/object_store.h"
#include "cache/store.h"
#include "compiler_core/base/file.h"

namespace kiln {

class PostgresReader final : public ReadableStore {
 public:
  // `url`: as PostgresStore::open() takes it. `copies`: as PostgresStoreOptions has them. Contacts
  // nobody: what is away is kUnavailable.
  PostgresReader(const std::string& url, std::unique_ptr<ObjectStore> objects, Path copies = {},
                 int64_t copies_bytes = 0);
  ~PostgresReader() override;

  // Damage is answered as kUnavailable: the coordinator that leads finds out, and removes it.
  void look_up_program(const Digest& program_key, Then<StoredProgram> then) override;
  void look_up_blob(const Digest& digest, Then<std::string> then) override;
  void look_up_link(const Digest& digest, Then<std::string> then) override;
  Result<std::vector<Revocation>> revocations() override;
  std::string away() const override;

  // Where the coordinator that leads says it is, for people; empty: nobody has said so yet. Waits.
  Result<std::string> leader();
  void drop_copies();  // something was taken back
  // Counts a use of these programs now, so that they are not evicted. Waits.
  Status touch(const std::vector<Digest>& programs);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
