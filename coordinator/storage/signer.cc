#include "coordinator/storage/signer.h"

namespace kiln {

const std::string& Signer::signature_of(const std::string& manifest) {
  if (last_signature_.empty() || last_manifest_ != manifest) {
    last_signature_ = key_.sign(signed_program(manifest)).bytes;
    last_manifest_ = manifest;
  }
  return last_signature_;
}

void Signer::sign(CompileReply& reply) {
  if (!reply.program_json.empty()) reply.signature = signature_of(reply.program_json);
}

void Signer::sign(WorkerOrders& orders) const {
  for (Job& job : orders.jobs) {
    for (CandidateJob& candidate : job.candidates) {
      if (candidate.binary.empty()) continue;
      const Digest message = signed_candidate(job.kernel_key, candidate.schedule.to_string(),
                                              candidate.recipe_json, candidate.binary);
      candidate.signature = key_.sign(message).bytes;
    }
  }
}

}  // namespace kiln
