#include "client/revocation_store.h"

#include <fmt/core.h>

namespace kiln {

// The file: the signature's line, then the list.
RevocationStore::RevocationStore(Path file, std::string_view signer) : file_(std::move(file)) {
  if (file_.empty()) return;
  const auto text = read_file(file_);
  if (!text) return;
  const size_t end = text->find('\n');
  const auto signature = Signature::parse(text->substr(0, end));
  if (!signature || end == std::string::npos) return;
  const std::string list = text->substr(end + 1);
  if (!verify_signature(signed_revocations(list), *signature,
                        signer.empty() ? signature->signer : signer, file_.string()))
    return;
  auto parsed = Revocations::parse(list);
  if (!parsed) return;
  list_ = *std::move(parsed);
  serial_ = list_.serial();
}

// A disk that refuses costs the next process a question, and nothing now.
void RevocationStore::hear(const std::string& list, const Signature& signature) {
  auto parsed = Revocations::parse(list);
  const std::lock_guard lock(mu_);
  if (!parsed || parsed->serial() <= serial_) return;
  list_ = *std::move(parsed);
  serial_ = list_.serial();
  if (!file_.empty()) (void)publish_file(file_, signature.to_string() + "\n" + list);
}

bool RevocationStore::cover(const Program& program) const {
  if (serial_ == 0) return false;
  const std::lock_guard lock(mu_);
  return list_.cover(program);
}

Status RevocationStore::check(const Program& program) const {
  if (!cover(program)) return {};
  return fail(Code::kUnavailable,
              fmt::format("program {} was taken back by its coordinator, and is not run: compile "
                          "it again",
                          program.key.short_hex()));
}

}  // namespace kiln
