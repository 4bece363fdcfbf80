#include "client/client.h"

#include <unordered_map>

#include "client/compiled_program.h"
#include "client/local_tier.h"
#include "client/remote.h"
#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/frontend/graph_file.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

using Clock = Remote::Clock;
using SharedFiles = std::shared_ptr<const ProgramFiles>;

constexpr size_t kMaxRemembered = 256;  // programs in the in-process table

struct Found {
  SharedFiles files;
  CacheOutcome outcome = CacheOutcome::kHit;
};

// The service is away, rather than answering "no".
bool is_away(const Error& error) {
  return error.code == Code::kUnavailable;
}

}  // namespace

// Constant after construction, but for what mu_ guards.
struct Client::Impl {
  ClientOptions options;
  std::unique_ptr<LocalTier> local;  // null: none
  std::unique_ptr<Remote> remote;    // null: none
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<std::mutex> pool_mu;
  std::mutex mu;
  std::unordered_map<Digest, SharedFiles> remembered;

  SharedFiles recall(const Digest& key) {
    std::lock_guard lock(mu);
    const auto found = remembered.find(key);
    return found == remembered.end() ? nullptr : found->second;
  }

  // Keeps `files` for the next caller, in this process and, if there is a tier, on disk. A disk
  // that refuses costs the next process a fetch, and nothing now.
  void keep(const Digest& key, const SharedFiles& files, bool on_disk) {
    {
      std::lock_guard lock(mu);
      if (remembered.size() >= kMaxRemembered) remembered.erase(remembered.begin());
      remembered[key] = files;
    }
    if (on_disk && local) (void)local->put(key, *files);
  }

  Result<SharedFiles> fetch(Program program, Clock::time_point deadline) {
    ProgramFiles files{std::move(program), {}};
    std::vector<std::string> binaries(files.program.kernels.size());
    std::vector<Digest> missing;
    for (size_t i = 0; i < binaries.size(); ++i) {
      const Digest& digest = files.program.kernels[i].blob;
      auto held = local ? local->blob(digest) : Result<std::string>(fail(Code::kNotFound, ""));
      if (held)
        binaries[i] = *std::move(held);
      else
        missing.push_back(digest);
    }
    if (!missing.empty()) {
      TRY(std::vector<std::string> fetched, remote->fetch(missing, deadline));
      for (size_t i = 0, next = 0; i < binaries.size(); ++i)
        if (binaries[i].empty()) binaries[i] = std::move(fetched[next++]);
    }
    for (size_t i = 0; i < binaries.size(); ++i) {
      const ProgramKernel& kernel = files.program.kernels[i];
      files.artifacts.push_back({kernel.recipe, std::move(binaries[i]), kernel.blob});
    }
    return std::make_shared<const ProgramFiles>(std::move(files));
  }

  Result<Found> ask(const NormalForm& form, const CompileOptions& wanted,
                    Clock::time_point deadline) {
    CompileRequest request;
    request.graph = form.digest;
    request.target = wanted.target;
    request.mode = wanted.mode;
    request.check_only = wanted.check_only;
    const auto text = [&form] { return print(form.graph); };
    const auto progress = [&wanted](const Progress& p) {
      if (wanted.on_progress)
        wanted.on_progress(
            {p.kernels, p.kernels_done, p.candidates, p.candidates_done, p.elapsed_s});
    };
    TRY(Remote::Answer answer, remote->compile(request, text, progress, deadline));
    auto files = fetch(answer.program, deadline);
    if (!files && files.error().code == Code::kNotFound && !wanted.check_only) {
      // A blob was lost between the two questions; the coordinator now knows, and tunes it again.
      TRY(answer, remote->compile(request, text, progress, deadline));
      files = fetch(std::move(answer.program), deadline);
    }
    if (!files) return fail(std::move(files).error());
    return Found{*std::move(files), answer.outcome};
  }

  Result<Found> compile_here(const NormalForm& form, const Target& target) {
    TRY(const HostCompiler compiler, HostCompiler::find(options.compiler));
    TRY(LocalCompilation made,
        compile_locally(form.graph, form.digest, target, compiler, pool->threads()));
    return Found{std::make_shared<const ProgramFiles>(
                     ProgramFiles{std::move(made.program), std::move(made.artifacts)}),
                 CacheOutcome::kLocal};
  }

  // In-process table, local tier, coordinator, local compile: the order of DESIGN's client.
  Result<Found> find(const NormalForm& form, const CompileOptions& wanted,
                     Clock::time_point deadline) {
    const Digest key = program_key(form.digest, wanted.target, wanted.mode, codegen_identity());
    if (SharedFiles files = recall(key)) return Found{files, CacheOutcome::kHit};
    if (local) {
      if (auto files = local->get(key)) {
        auto shared = std::make_shared<const ProgramFiles>(*std::move(files));
        keep(key, shared, false);
        return Found{shared, CacheOutcome::kHit};
      }
    }
    Error why{Code::kUnavailable, "no coordinator is configured", 0};
    if (remote) {
      auto found = ask(form, wanted, deadline);
      if (found) {
        keep(key, found->files, true);
        return found;
      }
      why = std::move(found).error();
      if (!is_away(why)) return fail(std::move(why));
    }
    if (wanted.check_only)
      return fail(remote ? why : Error{Code::kNotFound, "not in the cache", 0});
    if (!options.allow_fallback) return fail(std::move(why));
    TRY(Found made, compile_here(form, wanted.target));
    // What was made without search must not stand in for the tuned program later.
    const Digest made_key = made.files->program.key;
    keep(made_key, made.files, true);
    return made;
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  auto impl = std::make_unique<Impl>();
  if (!options.cache_dir.empty()) {
    TRY(impl->local, LocalTier::open(options.cache_dir));
  }
  if (!options.coordinator.empty())
    impl->remote = std::make_unique<Remote>(options.coordinator, options.connect_timeout);
  impl->pool = std::make_shared<ThreadPool>(options.threads);
  impl->pool_mu = std::make_shared<std::mutex>();
  impl->options = std::move(options);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Result<std::unique_ptr<CompiledProgram>> Client::compile(const Graph& graph,
                                                         const CompileOptions& options) {
  const auto started = Clock::now();
  CompileOptions wanted = options;
  if (wanted.target.isa.empty()) {
    if (wanted.target.backend != Backend::kCpu)
      return fail(Code::kUnsupported, "the cuda target is not covered yet; use --target cpu");
    wanted.target = host_cpu_target();
  }
  TRY(NormalForm form, normalise(graph));
  TRY(Found found, impl_->find(form, wanted, started + options.deadline));
  TRY(Executable executable, Executable::load(found.files->program, found.files->artifacts));
  const std::chrono::duration<double> seconds = Clock::now() - started;
  auto program = std::make_unique<CompiledProgram::Impl>(CompiledProgram::Impl{
      std::move(executable), std::move(form.input_order), static_cast<int>(graph.inputs().size()),
      to_string(found.outcome), seconds.count(), impl_->pool, impl_->pool_mu});
  return std::unique_ptr<CompiledProgram>(new CompiledProgram(std::move(program)));
}

Result<std::unique_ptr<CompiledProgram>> Client::compile_file(const Path& file,
                                                              const CompileOptions& options) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  return compile(exported.graph, options);
}

ServiceState Client::service_state() const {
  if (!impl_->remote) return ServiceState::kUnknown;
  if (impl_->remote->breaker_open()) return ServiceState::kAway;
  return impl_->remote->ever_reached() ? ServiceState::kReachable : ServiceState::kUnknown;
}

}  // namespace kiln
