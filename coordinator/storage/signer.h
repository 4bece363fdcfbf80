// Signer: puts the coordinator's signature on what others load: programs in answers, and binaries
// that one worker compiled and another one will time. One thread.
#pragma once

#include "compiler_core/base/signature.h"
#include "schema/messages.h"

namespace kiln {

class Signer {
 public:
  explicit Signer(SigningKey key) : key_(std::move(key)) {}

  const std::string& public_key() const { return key_.public_key(); }
  std::string endorsement() const { return key_.endorsement().to_string(); }
  // Caches the last one: all that wait for a program are answered in a row.
  const std::string& signature_of(const std::string& manifest);
  std::string signature_of_list(const std::string& list) const {
    return key_.sign(signed_revocations(list)).bytes;
  }
  void sign(CompileReply& reply);  // does nothing if it holds no program
  void sign(WorkerOrders& orders) const;

 private:
  const SigningKey key_;
  std::string last_manifest_, last_signature_;
};

}  // namespace kiln
