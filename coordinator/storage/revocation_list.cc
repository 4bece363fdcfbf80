#include "coordinator/storage/revocation_list.h"

#include <algorithm>

#include "compiler_core/program/revocations.h"

namespace kiln {

bool RevocationList::update(const std::vector<Revocation>& all, const Signer& signer) {
  int64_t serial = 0;
  for (const Revocation& each : all) serial = std::max(serial, each.through);
  if (serial == 0) return false;
  Revocations list(static_cast<uint64_t>(serial));
  for (const Revocation& each : all) {
    if (each.kind == Revocation::Kind::kProgram)
      list.revoke_program(each.key, each.through);
    else
      list.revoke_kernel(each.key, each.through);
  }
  std::string text = list.to_text();
  if (list.serial() == serial_ && text == text_) return false;
  text_ = std::move(text);
  signature_ = signer.signature_of_list(text_);
  serial_ = list.serial();
  return true;
}

}  // namespace kiln
