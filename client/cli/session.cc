#include "client/cli/session.h"

#include <cmath>

#include "cache/objects/link_reader.h"
#include "client/exported_directory.h"
#include "compiler_core/runtime/cuda_device.h"
#include "schema/keys/key_file.h"
#include "schema/messages.h"

namespace kiln::cli {

Result<std::unique_ptr<Client>> make_client(const Options& options, bool open_gpu) {
  ClientOptions client;
  client.coordinator = options.coordinator;
  client.key_file = options.key;
  if (!options.signer.empty()) {
    TRY(const std::string signer, read_signer(options.signer));
    client.signing_key = to_hex(signer);
  }
  client.cache_dir = options.cache_dir;
  client.cache_bytes = static_cast<int64_t>(options.cache_bytes);
  client.max_age = std::chrono::seconds(static_cast<int64_t>(options.max_age_s));
  client.allow_fallback = !options.no_fallback && !options.check;
  client.compiler = options.compiler;
  client.threads = options.threads;
  client.libcuda = options.libcuda;
  client.libnvrtc = options.libnvrtc;
  client.libcublaslt = options.no_libraries ? std::string(kNoLibraries) : options.libcublaslt;
  client.open_gpu = open_gpu;
  if (options.blob_links) {
    const auto reader = std::make_shared<LinkReader>(options.variable("AWS_CA_BUNDLE"),
                                                     static_cast<int64_t>(kMaxBlobBytes));
    client.read_links = [reader](const std::vector<std::string>& urls,
                                 std::chrono::milliseconds timeout) {
      return reader->read(urls, timeout);
    };
  }
  auto made = Client::create(std::move(client));
  // It asked no service yet: what is unavailable is the cache directory.
  if (!made && made.error().code == Code::kUnavailable) made.error().code = Code::kInvalidArgument;
  return made;
}

Result<std::string> expected_signer(const Options& options) {
  if (!options.signer.empty()) return read_signer(options.signer);
  if (options.key.empty()) return std::string();
  TRY(const ClientKey key, read_client_key(options.key));
  return key.signing_key.empty() ? std::string() : parse_public_key(key.signing_key);
}

Result<CompileOptions> compile_options(const Options& options) {
  CompileOptions compile;
  TRY(compile.target, Target::parse(options.target));
  if (compile.target.backend == Backend::kCpu) {
    const Target host = host_cpu_target();
    if (compile.target.isa.empty()) {
      compile.target = host;
    } else {
      if (!host.can_run(compile.target))
        return fail(Code::kInvalidArgument, "this machine is " + host.to_string() +
                                                " and cannot run " + compile.target.to_string());
      compile.target.device_model = host.device_model;
      compile.target.units = host.units;
    }
  }
  TRY(compile.mode, parse_mode(options.mode));
  if (!(options.deadline_s > 0) || options.deadline_s > 1e6)
    return fail(Code::kInvalidArgument, "--deadline is a number of seconds above 0");
  compile.deadline = std::chrono::milliseconds(std::llround(options.deadline_s * 1000));
  compile.reduce_overhead = options.reduce_overhead;
  compile.background = options.warm_up;
  compile.strict = options.strict;
  if (options.now && compile.mode != Mode::kMaxAutotune)
    return fail(
        Code::kInvalidArgument,
        "--now is for --mode max-autotune: default mode is answered as soon as it is compiled");
  compile.now = options.now;
  compile.verify = options.verify || !options.out.empty();  // what is exported is run for long
  compile.traceparent = options.variable("TRACEPARENT");
  return compile;
}

}  // namespace kiln::cli
