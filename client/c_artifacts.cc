// The artifacts of the C interface (kiln.h) over ArtifactClient.
#include "client/artifact_client.h"
#include "client/c_call.h"
#include "client/kernel_offer.h"
#include "compiler_core/frontend/exported_program.h"

using namespace kiln;

struct kiln_artifacts {
  std::unique_ptr<ArtifactClient> client;
};

namespace {

struct Value {
  kiln_artifact description{};  // first: what callers hold points at it
  std::string bytes;
};

std::chrono::milliseconds timeout(int32_t given_ms) {
  constexpr int32_t kUsualMs = 2000;
  return std::chrono::milliseconds(given_ms > 0 ? given_ms : kUsualMs);
}

Result<OfferedKernel> offered_kernel(std::string_view graph, const kiln_candidate& given) {
  const auto missing = [](const char* what) {
    return fail(Code::kInvalidArgument, std::string("a candidate needs ") + what);
  };
  if (given.name == nullptr || given.function == nullptr) return missing("a name and a function");
  if ((given.source == nullptr) == (given.binary == nullptr))
    return missing("either a source or a binary");
  if (given.arguments == nullptr || given.arguments_size < 1) return missing("its arguments");
  KernelOffer offer;
  offer.name = given.name;
  TRY(offer.target, Target::parse(given.target == nullptr ? "cpu" : given.target));
  offer.arguments.assign(given.arguments, given.arguments + given.arguments_size);
  if (given.source != nullptr) {
    KernelText made{given.source, given.function, given.items};
    if (given.block != 0) made.block = given.block;
    if (given.threads != 0) made.threads = given.threads;
    made.shared_bytes = given.shared_bytes;
    offer.kernel = std::move(made);
  } else {
    offer.kernel =
        KernelBinary{std::string(static_cast<const char*>(given.binary), given.binary_size),
                     given.function,
                     given.blocks,
                     given.threads,
                     std::max(1, given.cluster),
                     given.shared_bytes,
                     given.null_pointers,
                     given.dependent_launch != 0};
  }
  TRY(const ExportedProgram exported, read_graph_bytes(graph));
  return make_offer(exported.graph, offer, {text(given.compiler), text(given.libnvrtc)});
}

}  // namespace

extern "C" {

kiln_code kiln_artifacts_open(const kiln_artifacts_options* given, kiln_artifacts** artifacts) {
  const kiln_artifacts_options from = known(given);
  if (artifacts == nullptr || from.coordinator == nullptr)
    return missing("the coordinator or the place for the artifacts");
  auto made =
      ArtifactClient::create({text(from.coordinator), text(from.key_file), text(from.signing_key)});
  if (!made) return failed(std::move(made).error());
  *artifacts = new kiln_artifacts{*std::move(made)};
  return KILN_OK;
}
void kiln_artifacts_close(kiln_artifacts* artifacts) {
  delete artifacts;
}

kiln_code kiln_artifact_get(kiln_artifacts* artifacts, const char* kind, const char* key,
                            const kiln_artifact_options* given, kiln_artifact** artifact) {
  if (artifacts == nullptr || kind == nullptr || key == nullptr || artifact == nullptr)
    return missing("the artifacts, the kind, the key or the place for the artifact");
  const kiln_artifact_options options = known(given);
  auto found = artifacts->client->get(
      kind, key,
      {timeout(options.timeout_ms), std::chrono::milliseconds(options.wait_ms),
       std::chrono::milliseconds(options.lease_ms)});
  if (!found) return failed(std::move(found).error());
  auto value = std::make_unique<Value>();
  value->description = {nullptr, 0, found->lease, found->leased ? 1 : 0};
  if (found->value) {
    value->bytes = *std::move(found->value);
    value->description.bytes = value->bytes.data();
    value->description.bytes_size = value->bytes.size();
  }
  *artifact = &value.release()->description;
  return KILN_OK;
}
void kiln_artifact_free(kiln_artifact* artifact) {
  delete reinterpret_cast<Value*>(artifact);
}

kiln_code kiln_artifact_put(kiln_artifacts* artifacts, const char* kind, const char* key,
                            const void* bytes, size_t bytes_size, int32_t timeout_ms) {
  if (artifacts == nullptr || kind == nullptr || key == nullptr || bytes == nullptr)
    return missing("the artifacts, the kind, the key or the bytes");
  return code_of(artifacts->client->put(
      kind, key, std::string(static_cast<const char*>(bytes), bytes_size), timeout(timeout_ms)));
}
kiln_code kiln_candidate_put(kiln_artifacts* artifacts, const void* graph, size_t graph_size,
                             const kiln_candidate* given, char* schedule, size_t schedule_size,
                             int32_t timeout_ms) {
  if (artifacts == nullptr || graph == nullptr || given == nullptr)
    return missing("the artifacts, the graph or the candidate");
  const kiln_candidate candidate = known(given);
  const auto offered = offered_kernel({static_cast<const char*>(graph), graph_size}, candidate);
  if (!offered) return failed(offered.error());
  const std::string name = offered->template_name();
  const Status put = artifacts->client->put(kOfferedKind, offered->key(), offered_to_text(*offered),
                                            timeout(timeout_ms));
  if (put && schedule != nullptr && schedule_size > 0)
    schedule[name.copy(schedule, schedule_size - 1)] = '\0';
  return code_of(put);
}
kiln_code kiln_artifact_release(kiln_artifacts* artifacts, uint64_t lease, int32_t timeout_ms) {
  if (artifacts == nullptr) return missing("the artifacts");
  return code_of(artifacts->client->release(lease, timeout(timeout_ms)));
}

}  // extern "C"
