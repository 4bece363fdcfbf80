#include "worker/jobs/signed_job.h"

#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

CandidateResult refusal(const Job& job, const CandidateJob& candidate, const Error& why) {
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = candidate.index;
  result.verdict = Verdict::kDeviceLost;
  result.log = why.message;
  return result;
}

}  // namespace

std::vector<CandidateResult> take_out_unsigned(Job& job, std::string_view signer,
                                               std::string_view trusted) {
  std::vector<CandidateResult> refused;
  std::erase_if(job.candidates, [&](const CandidateJob& candidate) {
    if (candidate.binary.empty()) return false;
    const Digest message = signed_candidate(job.kernel_key, candidate.schedule.to_string(),
                                            candidate.recipe_json, candidate.binary);
    const Status good = verify_signature(
        message, {std::string(signer), candidate.signature}, trusted,
        "candidate " + candidate.schedule.to_string() + " of kernel " + job.kernel_key.short_hex());
    if (!good) refused.push_back(refusal(job, candidate, good.error()));
    return !good.has_value();
  });
  return refused;
}

}  // namespace kiln
