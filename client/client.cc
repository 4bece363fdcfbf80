#include "client/client.h"

#include <fmt/core.h>

#include <unordered_map>

#include "client/call_trace.h"
#include "client/compiled_program.h"
#include "client/devices.h"
#include "client/exported_directory.h"
#include "client/loaded_bundles.h"
#include "client/local_tier.h"
#include "client/remote.h"
#include "client/revocation_store.h"
#include "client/service_request.h"
#include "client/toolchains.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

using Clock = Remote::Clock;
constexpr size_t kMaxRemembered = 256;  // programs in the in-process table

}  // namespace

// Constant after construction, but for what mu guards.
struct Client::Impl {
  explicit Impl(ClientOptions wanted)
      : options(std::move(wanted)),
        devices(options),
        toolchains(options.compiler, options.libnvrtc, devices.gpu()) {}

  const ClientOptions options;
  Devices devices;
  const Toolchains toolchains;
  std::unique_ptr<LocalTier> local;  // null: none
  std::unique_ptr<Remote> remote;    // null: none
  std::string signer;                // the public key that programs must be signed with; or empty
  std::shared_ptr<RevocationStore> revocations;  // never null
  std::unique_ptr<LoadedBundles> bundles;        // never null

  std::mutex mu;
  std::unordered_map<Digest, SharedFiles> remembered;

  SharedFiles recall(const Digest& key, bool only_verified) {
    std::lock_guard lock(mu);
    const auto found = remembered.find(key);
    if (found == remembered.end()) return nullptr;
    if (only_verified && !is_verified(found->second->program)) return nullptr;
    if (!revocations->cover(found->second->program)) return found->second;
    remembered.erase(found);
    return nullptr;
  }

  SharedFiles not_revoked(const SharedFiles& files) const {
    return files != nullptr && revocations->cover(files->program) ? nullptr : files;
  }

  // Keeps `files` for the next caller, in this process and, if there is a tier, on disk. A disk
  // that refuses costs the next process a fetch, and nothing now; `wanted` hears of it.
  void keep(const CompileOptions& wanted, const Digest& key, const SharedFiles& files, bool on_disk,
            bool in_memory = true) {
    if (in_memory) {
      std::lock_guard lock(mu);
      if (remembered.size() >= kMaxRemembered) remembered.erase(remembered.begin());
      remembered[key] = files;
    }
    if (!on_disk || !local) return;
    const Status kept = local->put(key, *files);
    if (!kept && wanted.on_message)
      wanted.on_message("the cache directory does not keep it: " + kept.error().message);
  }

  Result<ProgramFiles> recall_from_disk(const Digest& key, const CompileRequest& asked) {
    if (options.max_age.count() > 0 && local->age(key) > options.max_age)
      return fail(Code::kNotFound, "the copy is too old");
    TRY(ProgramFiles files, local->get(key, signer));
    if (Status good = revocations->check(files.program); !good) {
      local->remove(key);
      return fail(std::move(good).error());
    }
    const Status is_asked = check_is_asked(asked, files.program, "the local tier");
    if (is_asked) return files;
    local->remove(key);
    return fail(is_asked.error());
  }

  bool allows_fallback(const Wanted& wanted) const {
    return options.allow_fallback && !wanted.no_fallback;
  }

  // A part of the time stays for compiling here: it is not spent waiting for a service's return.
  Remote::Waiting waiting_for(const Wanted& wanted, Clock::time_point started) const {
    constexpr int kPartForTheFallback = 10;
    Remote::Waiting waiting(started + wanted.deadline);
    if (allows_fallback(wanted) && !wanted.starts_nothing())
      waiting.returns_until -= wanted.deadline / kPartForTheFallback;
    waiting.on_message = wanted.on_message;
    waiting.is_cancelled = wanted.is_cancelled;
    waiting.on_progress = [&wanted](const Progress& p) {
      if (wanted.on_progress)
        wanted.on_progress(
            {p.kernels, p.kernels_done, p.candidates, p.candidates_done, p.elapsed_s, p.waiting});
    };
    return waiting;
  }

  Result<Found> compile_here(const NormalForm& form, const Target& target) {
    TRY(const auto compiler, toolchains.compiler_for(target));
    const int jobs = options.threads > 0 ? options.threads : host_cpu_target().units;
    TRY(LocalCompilation made, compile_locally(form.graph, form.digest, target, *compiler, jobs));
    return Found{std::make_shared<const ProgramFiles>(
                     ProgramFiles{std::move(made.program), std::move(made.artifacts)}),
                 Outcome::kLocal};
  }

  void say_fallback(const Wanted& wanted, const Error& why) const {
    if (!wanted.on_message || (!remote && wanted.mode == Mode::kDefault)) return;
    wanted.on_message((remote ? why.message : "no service to tune it") +
                      "; compiled here, untuned");
  }

  // Asks the in-process table, the local tier and the coordinator in turn, and compiles here when
  // none of them answers. A stale program of the tier serves only while the coordinator is away.
  Result<Found> find(const NormalForm& form, const Wanted& wanted, Clock::time_point started,
                     CallTrace& trace) {
    trace.enter("look_up");
    const Digest key = program_key(form.digest, wanted.target, wanted.mode);
    // Right, but other templates than this build's made it: better than what was not tuned at all.
    SharedFiles stale;
    const bool only_verified = wanted.verify && remote;
    if (SharedFiles files = recall(key, only_verified)) return Found{files};
    if (SharedFiles files = not_revoked(bundles->find(form.digest, wanted.target, wanted.mode)))
      return Found{files};
    if (local) {
      auto files = recall_from_disk(key, request_for(form, wanted));
      if (!files && files.error().code != Code::kNotFound && wanted.on_message)
        wanted.on_message(files.error().message);
      if (files && (!only_verified || is_verified(files->program))) {
        auto shared = std::make_shared<const ProgramFiles>(*std::move(files));
        if (shared->program.template_stamp == template_stamp(template_versions())) {
          keep(wanted, key, shared, false);
          return Found{shared};
        }
        const bool is_better =
            !wanted.has_graph() || (wanted.mode == Mode::kMaxAutotune && !wanted.starts_nothing());
        if (is_better && !wanted.strict) stale = shared;
      }
    }
    if (SharedFiles files = not_revoked(
            bundles->find_in_tier(form.digest, wanted.target, wanted.mode, wanted.on_message))) {
      const bool fits = check_is_asked(request_for(form, wanted), files->program, "").has_value();
      keep(wanted, key, files, fits);
      return Found{files};
    }
    Error why{Code::kUnavailable, "no coordinator is configured", 0};
    if (remote) {
      auto found = ask(*remote, local.get(), form, wanted, waiting_for(wanted, started), trace);
      if (found) {
        // A stale program is asked for again at the next call: its successor may be there. One that
        // is not verified yet is kept nowhere: by then it is, or was found wrong. Tier 0 is kept as the
        // default program that it is.
        const bool is_tier0 = found->outcome == Outcome::kTier0;
        if (is_verified(found->files->program))
          keep(wanted, is_tier0 ? program_key(form.digest, wanted.target, Mode::kDefault) : key,
               found->files, true, !is_tier0 && found->outcome != Outcome::kStale);
        return *std::move(found);
      }
      const Code code = found.error().error.code;
      const bool gone = !wanted.has_graph() && code == Code::kNotFound;
      if (stale && (gone || code == Code::kUnavailable)) return Found{stale, Outcome::kStale};
      const bool ours = wanted.has_graph() && found.error().by_service &&
                        blames_our_graph(found.error().error, form.graph);
      if (!ours && !found.error().may_compile_here(wanted.mode)) return fail(found.error().error);
      why = std::move(found).error().error;
      if (ours) why = refused_graph(form, why, options.cache_dir);
      if (ours && wanted.on_message) wanted.on_message(why.message);
    }
    if (stale) return Found{stale, Outcome::kStale};
    if (wanted.starts_nothing())
      return fail(remote ? why : Error{Code::kNotFound, "not in the cache", 0});
    if (!allows_fallback(wanted)) return fail(std::move(why));
    say_fallback(wanted, why);
    trace.enter("compile_here");
    TRY(Found made, compile_here(form, wanted.target));
    // A program made without search must not stand in for the tuned one later.
    const Digest made_key = made.files->program.key;
    // Where a signer is pinned, nothing that carries no signature of its would be taken back.
    keep(wanted, made_key, made.files, signer.empty());
    return made;
  }

  // Completes the target, and checks that what is loaded can be.
  Status prepare(CompileOptions& wanted, bool is_loaded, StartUp& start_up) const {
    const auto started = Clock::now();
    TRY(wanted.target, toolchains.complete(wanted.target));
    if (is_loaded) TRY_STATUS(devices.check_loadable(wanted.target));
    if (wanted.target.backend == Backend::kCuda) start_up.context_wait_ms = ms_since(started);
    return {};
  }

  // Fills in everything except what loading adds.
  Status bind(size_t inputs, std::vector<int> input_order, Found found,
              CompiledProgram::Impl& program) const {
    program.files = std::move(found.files);
    program.revocations = revocations;
    program.input_order = std::move(input_order);
    program.caller_inputs = static_cast<int>(inputs);
    program.outcome = found.outcome;
    program.memory_only = found.memory_only;
    TRY(program.binder, caller_binder(program.files->program, program.input_order, inputs));
    return {};
  }

  // REQUIRES: `wanted.target` is complete.
  Status load(const CompileOptions& wanted, CompiledProgram::Impl& program) {
    TRY(Executable executable, devices.load(wanted, *program.files, program.start_up));
    program.loaded.emplace(std::move(executable));
    if (wanted.target.backend == Backend::kCpu) program.cpu_mu = devices.cpu_mutex();
    return {};
  }

  // What a call is about: a graph, or the digest of one with how the caller numbers its inputs.
  struct Subject {
    const Graph* graph = nullptr;
    Digest digest{};
    std::span<const int> places{};
  };
  Compiled get(const Subject& subject, const Wanted& wanted);
  Compiled get(const Subject& subject, Wanted wanted, CallTrace& trace);
  // Loads what `read` finds for this machine, whose target it is given.
  Compiled open(CompileOptions wanted,
                const std::function<Result<BoundFiles>(const Target&)>& read);
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  const ClientOptions& given = impl->options;
  if (!given.cache_dir.empty()) {
    TRY(impl->local, LocalTier::open(given.cache_dir, given.cache_bytes));
  }
  std::string signing_key = given.signing_key;
  if (signing_key.empty() && !given.key_file.empty()) {
    TRY(const ClientKey key, read_client_key(given.key_file));
    signing_key = key.signing_key;
  }
  if (!signing_key.empty()) {
    TRY(impl->signer, parse_public_key(signing_key));
  }
  impl->revocations = std::make_shared<RevocationStore>(
      given.cache_dir.empty() ? Path() : Path(given.cache_dir) / "revoked", impl->signer);
  impl->bundles = std::make_unique<LoadedBundles>(given.cache_dir, impl->signer);
  if (!given.coordinator.empty()) {
    impl->remote = std::make_unique<Remote>(given.coordinator, given.connect_timeout);
    impl->remote->trust(impl->signer);
    impl->remote->use_key(given.key_file);
    impl->remote->read_links_with(given.read_links);
    impl->remote->tell_revocations(
        {[store = impl->revocations] { return store->serial(); },
         [store = impl->revocations](const std::string& list, const Signature& signature) {
           store->hear(list, signature);
         }});
  }
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Compiled Client::Impl::get(const Subject& subject, const Wanted& wanted) {
  CallTrace trace(wanted, "client " + wanted.name());
  Compiled got = get(subject, wanted, trace);
  if (got)
    trace.ended(kiln::to_string((*got)->outcome()));
  else
    trace.failed(got.error());
  return got;
}

Client::Compiled Client::Impl::get(const Subject& subject, Wanted wanted, CallTrace& trace) {
  const auto started = Clock::now();
  trace.enter("prepare");
  auto program = std::make_unique<CompiledProgram::Impl>();
  TRY_STATUS(prepare(wanted, wanted.is_loaded(), program->start_up));
  const auto targeted = Clock::now();
  NormalForm form{{}, subject.digest, {}};
  if (subject.graph != nullptr) {
    trace.enter("normalise");
    TRY(form, normalise(*subject.graph));
  }
  TRY(Found found, find(form, wanted, started, trace));
  program->start_up.fetch_ms = ms_since(targeted);
  trace.enter("load");
  size_t inputs = subject.places.size();
  if (subject.graph != nullptr) {
    inputs = subject.graph->inputs().size();
  } else {
    TRY(form.input_order, input_order_of(subject.places, found.files->program));
    if (subject.places.empty()) inputs = form.input_order.size();
  }
  TRY_STATUS(bind(inputs, std::move(form.input_order), std::move(found), *program));
  if (wanted.is_loaded()) TRY_STATUS(load(wanted, *program));
  program->seconds = ms_since(started) / 1000;
  return std::unique_ptr<CompiledProgram>(new CompiledProgram(std::move(program)));
}

Client::Compiled Client::compile(const Graph& graph, const CompileOptions& options) {
  return impl_->get({&graph}, Wanted(options, Wanted::Call::kCompile));
}

Client::Compiled Client::compile_file(const Path& file, const CompileOptions& options) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  return compile(exported.graph, options);
}

Client::Compiled Client::fetch(const Graph& graph, const CompileOptions& options) {
  return impl_->get({&graph}, Wanted(options, Wanted::Call::kFetch));
}

Client::Compiled Client::look_up(const Graph& graph, const CompileOptions& options) {
  return impl_->get({&graph}, Wanted(options, Wanted::Call::kLookUp));
}

Client::Compiled Client::load(const Digest& graph, const CompileOptions& options,
                              std::span<const int> places) {
  Compiled got = impl_->get({nullptr, graph, places}, Wanted(options, Wanted::Call::kLoad));
  if (!got && got.error().code == Code::kNotFound)
    got.error().message += fmt::format(
        "; the digest of graph {} alone makes no program ({}, mode {}): send the graph once, with "
        "`kiln warm FILE` or `kiln compile FILE`",
        graph.short_hex(), options.target.to_string(), kiln::to_string(options.mode));
  return got;
}

Client::Compiled Client::Impl::open(CompileOptions wanted,
                                    const std::function<Result<BoundFiles>(const Target&)>& read) {
  const auto started = Clock::now();
  auto program = std::make_unique<CompiledProgram::Impl>();
  TRY_STATUS(prepare(wanted, true, program->start_up));
  const auto targeted = Clock::now();
  TRY(BoundFiles bound, read(wanted.target));
  TRY_STATUS(revocations->check(bound.files->program));
  TRY_STATUS(bind(bound.inputs, std::move(bound.input_order), {std::move(bound.files)}, *program));
  program->start_up.fetch_ms = ms_since(targeted);
  TRY_STATUS(load(wanted, *program));
  program->seconds = ms_since(started) / 1000;
  return std::unique_ptr<CompiledProgram>(new CompiledProgram(std::move(program)));
}

Client::Compiled Client::open_exported(const Graph& graph, const Path& place,
                                       const CompileOptions& options) {
  return impl_->open(options, [&](const Target& here) -> Result<BoundFiles> {
    TRY(NormalForm form, normalise(graph));
    TRY(SharedFiles files,
        read_exported_for(place, impl_->signer, form.digest, here, options.mode));
    return BoundFiles{std::move(files), std::move(form.input_order), graph.inputs().size()};
  });
}

Client::Compiled Client::open_exported(const Path& directory, const CompileOptions& options,
                                       const std::string& signer) {
  std::optional<std::string> trusted = impl_->signer;
  if (signer == kUnsigned) {
    trusted.reset();
  } else if (!signer.empty()) {
    TRY(trusted, read_signer(signer));
  }
  TRY(const BoundFiles bound, read_bound(directory, trusted));
  const Program& program = bound.files->program;
  CompileOptions wanted = options;
  wanted.target = {};
  wanted.target.backend = program.target.backend;
  return impl_->open(wanted, [&](const Target& here) -> Result<BoundFiles> {
    TRY_STATUS(check_runs_here(program, here, directory));
    return bound;
  });
}

Result<int> Client::load_bundle(const Path& file, const std::string& signer) {
  TRY(const std::string trusted, signer.empty() ? Result<std::string>("") : read_signer(signer));
  return impl_->bundles->load(file, trusted);
}

Result<int> Client::add_bundle(std::string_view text, const std::string& signer) {
  TRY(const std::string trusted, signer.empty() ? Result<std::string>("") : read_signer(signer));
  return impl_->bundles->add(text, "the bundle", trusted);
}

Result<Client::Submission> Client::submit(const Graph& graph, const CompileOptions& options) {
  if (!impl_->remote)
    return fail(Code::kUnavailable, "no coordinator is configured: name one to queue this at");
  const auto deadline = Clock::now() + options.deadline;
  CallTrace trace(options, "client submit");
  trace.enter("normalise");
  Wanted wanted(options, Wanted::Call::kFetch);
  TRY(wanted.target, impl_->toolchains.complete(options.target));
  TRY(const NormalForm form, normalise(graph));
  CompileRequest request = request_for(form, wanted);
  request.priority = Priority::kWarmUp;
  request.detach = true;
  trace.enter("ask");
  request.traceparent = trace.traceparent();
  const auto text = [&form] { return text_to_send(form.graph); };
  TRY(const Remote::Word word, impl_->remote->compile(request, text, deadline));
  if (!word) return fail(word.error());
  return Submission{form.digest, wanted.target, outcome_of(*word)};
}

ServiceState Client::service_state() const {
  if (!impl_->remote) return ServiceState::kUnknown;
  if (impl_->remote->breaker_open()) return ServiceState::kAway;
  return impl_->remote->ever_reached() ? ServiceState::kReachable : ServiceState::kUnknown;
}

}  // namespace kiln
