// RevocationList: what was taken back, as clients get it: one text with a serial, signed. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/taking_back.h"
#include "coordinator/storage/signer.h"

namespace kiln {

class RevocationList {
 public:
  // `all`: the store's, oldest first. False when it says what it said before.
  bool update(const std::vector<Revocation>& all, const Signer& signer);

  uint64_t serial() const { return serial_; }  // 0 while nothing was taken back
  const std::string& text() const { return text_; }
  const std::string& signature() const { return signature_; }

 private:
  uint64_t serial_ = 0;
  std::string text_, signature_;
};

}  // namespace kiln
