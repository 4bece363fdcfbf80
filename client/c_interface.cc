// The C interface (kiln.h) over Client and CompiledProgram: nothing is implemented here but the
// translation of options and errors; c_program.h describes programs.
#include <algorithm>
#include <mutex>

#include "client/c_call.h"
#include "client/c_program.h"
#include "client/compiled_program.h"
#include "compiler_core/program/program.h"

using namespace kiln;

struct kiln_links {
  explicit kiln_links(size_t count)
      : bodies(count, fail(Code::kUnavailable, "the caller could not read the link")) {}

  std::mutex mutex;
  std::vector<Result<std::string>> bodies;  // guarded by mutex
};

Result<CompileOptions> kiln::compile_options(const kiln_compile_options& given) {
  CompileOptions options;
  TRY(options.target, Target::parse(given.target == nullptr ? "cpu" : given.target));
  if (given.mode == KILN_MODE_MAX_AUTOTUNE)
    options.mode = Mode::kMaxAutotune;
  else if (given.mode != KILN_MODE_DEFAULT)
    return fail(Code::kInvalidArgument, "no such mode: " + std::to_string(given.mode));
  if (given.deadline_ms > 0) options.deadline = std::chrono::milliseconds(given.deadline_ms);
  options.reduce_overhead = given.reduce_overhead != 0;
  options.background = given.background != 0;
  options.strict = given.strict != 0;
  options.verify = given.verify != 0;
  options.traceparent = text(given.traceparent);
  options.now = given.now != 0;
  options.lazy_memory = true;
  if (given.on_message != nullptr)
    options.on_message = [given](const std::string& sentence) {
      given.on_message(given.user, sentence.c_str());
    };
  if (given.on_progress != nullptr) {
    // Asking the caller whether to go on repeats the last report.
    const auto last = std::make_shared<kiln_progress>();
    const auto ended = std::make_shared<bool>(false);
    options.on_progress = [given, last, ended](const CompileProgress& p) {
      *last = {p.kernels, p.kernels_done, p.candidates, p.candidates_done, p.elapsed_s};
      *ended = *ended || given.on_progress(given.user, last.get()) != 0;
    };
    options.is_cancelled = [given, last, ended] {
      *ended = *ended || given.on_progress(given.user, last.get()) != 0;
      return *ended;
    };
  }
  return options;
}

namespace {

std::vector<Result<std::string>> read_links(kiln_read_links read, void* user,
                                            const std::vector<std::string>& urls,
                                            std::chrono::milliseconds timeout) {
  kiln_links links(urls.size());
  std::vector<const char*> texts;
  for (const std::string& url : urls) texts.push_back(url.c_str());
  read(user, texts.data(), static_cast<int32_t>(urls.size()), timeout.count(), &links);
  const std::lock_guard lock(links.mutex);
  return std::move(links.bodies);
}

Result<std::unique_ptr<kiln_program>> compile(const std::shared_ptr<Client>& client,
                                              const ExportedProgram& exported,
                                              const kiln_compile_options* given) {
  const kiln_compile_options known_options = known(given);
  TRY(const CompileOptions options, compile_options(known_options));
  if (known_options.cached_only != 0)
    TRY_STATUS(client->look_up(exported.graph, options).map([](const auto&) {}));
  const bool fetches = known_options.fetch_only != 0;
  if (fetches && options.now)
    return fail(Code::kInvalidArgument,
                "fetch_only and now: a program that is not loaded cannot be exchanged");
  if (!options.now) {
    TRY(std::unique_ptr<CompiledProgram> compiled, fetches
                                                       ? client->fetch(exported.graph, options)
                                                       : client->compile(exported.graph, options));
    return described(std::move(compiled), exported);
  }
  TRY(std::shared_ptr<const TieredProgram> tiered,
      TieredProgram::compile(client, exported.graph, options));
  auto made = described(tiered->first(), exported);
  if (tiered->has_successor()) made->tiered = std::move(tiered);
  return made;
}

kiln_code compile_into(kiln_client* client, const Result<ExportedProgram>& exported,
                       const kiln_compile_options* options, kiln_program** program) {
  if (!exported) return failed(exported.error());
  auto made = compile(client->client, *exported, options);
  if (!made) return failed(std::move(made).error());
  *program = made->release();
  return KILN_OK;
}

std::string_view view(const void* bytes, size_t size) {
  return {static_cast<const char*>(bytes), size};
}

std::span<const int64_t> symbols_of(const kiln_program* program, const int64_t* symbols) {
  return {symbols, symbols == nullptr ? 0 : program->symbols.size()};
}

template <class T>
const T* at(const std::vector<T>& list, int32_t index) {
  const bool inside = index >= 0 && static_cast<size_t>(index) < list.size();
  return inside ? &list[static_cast<size_t>(index)] : nullptr;
}

thread_local Error last_error{};
thread_local bool has_failed = false;

}  // namespace

static_assert(static_cast<int>(Code::kInvalidArgument) == KILN_INVALID_ARGUMENT &&
              static_cast<int>(Code::kInternal) == KILN_INTERNAL);

kiln_code kiln::failed(Error error) {
  last_error = std::move(error);
  has_failed = true;
  return static_cast<kiln_code>(last_error.code);
}

extern "C" {

int32_t kiln_abi_version(void) {
  return KILN_ABI_VERSION;
}
const char* kiln_version(void) {
#define KILN_TEXT(x) KILN_TEXT_OF(x)
#define KILN_TEXT_OF(x) #x
  return KILN_TEXT(KILN_VERSION_MAJOR) "." KILN_TEXT(KILN_VERSION_MINOR) "." KILN_TEXT(
      KILN_VERSION_PATCH);
}
kiln_code kiln_last_error_code(void) {
  return has_failed ? static_cast<kiln_code>(last_error.code) : KILN_OK;
}
const char* kiln_last_error(void) {
  return last_error.message.c_str();
}

kiln_code kiln_client_open(const kiln_client_options* given, kiln_client** client) {
  if (client == nullptr) return missing("the place for the client");
  const kiln_client_options from = known(given);
  ClientOptions options;
  options.coordinator = text(from.coordinator);
  options.key_file = text(from.key_file);
  options.cache_dir = text(from.cache_dir);
  options.signing_key = text(from.signing_key);
  options.compiler = text(from.compiler);
  options.libcuda = text(from.libcuda);
  options.libnvrtc = text(from.libnvrtc);
  options.libcublaslt = text(from.libcublaslt);
  if (from.cache_bytes > 0) options.cache_bytes = from.cache_bytes;
  if (from.connect_timeout_ms > 0)
    options.connect_timeout = std::chrono::milliseconds(from.connect_timeout_ms);
  options.threads = from.threads;
  options.allow_fallback = from.no_fallback == 0;
  options.open_gpu = from.open_gpu != 0;
  options.gpu = from.gpu;
  if (from.read_links != nullptr)
    options.read_links = [read = from.read_links, user = from.read_links_user](
                             const std::vector<std::string>& urls,
                             std::chrono::milliseconds timeout) {
      return read_links(read, user, urls, timeout);
    };
  auto made = Client::create(std::move(options));
  if (!made) return failed(std::move(made).error());
  *client = new kiln_client{*std::move(made)};
  return KILN_OK;
}
void kiln_link_read(kiln_links* links, int32_t index, const void* bytes, size_t size) {
  if (links == nullptr || (bytes == nullptr && size > 0)) return;
  const std::lock_guard lock(links->mutex);
  const bool inside = index >= 0 && static_cast<size_t>(index) < links->bodies.size();
  if (inside) links->bodies[static_cast<size_t>(index)] = std::string(view(bytes, size));
}
void kiln_client_close(kiln_client* client) {
  delete client;
}
kiln_code kiln_client_load_bundle(kiln_client* client, const char* path, const char* signer,
                                  int32_t* programs) {
  if (client == nullptr || path == nullptr) return missing("the client or the path");
  const auto loaded = client->client->load_bundle(path, text(signer));
  if (!loaded) return failed(loaded.error());
  if (programs != nullptr) *programs = *loaded;
  return KILN_OK;
}
kiln_code kiln_client_add_bundle(kiln_client* client, const void* bytes, size_t bytes_size,
                                 const char* signer, int32_t* programs) {
  if (client == nullptr || bytes == nullptr) return missing("the client or the bytes");
  const auto added =
      client->client->add_bundle({static_cast<const char*>(bytes), bytes_size}, text(signer));
  if (!added) return failed(added.error());
  if (programs != nullptr) *programs = *added;
  return KILN_OK;
}
kiln_service kiln_client_service(const kiln_client* client) {
  switch (client->client->service_state()) {
    case ServiceState::kReachable:
      return KILN_SERVICE_REACHABLE;
    case ServiceState::kAway:
      return KILN_SERVICE_AWAY;
    case ServiceState::kUnknown:
      break;
  }
  return KILN_SERVICE_UNKNOWN;
}

kiln_code kiln_compile(kiln_client* client, const void* bytes, size_t bytes_size,
                       const kiln_compile_options* options, kiln_program** program) {
  if (client == nullptr || bytes == nullptr || program == nullptr)
    return missing("the client, the bytes or the place for the program");
  return compile_into(client, read_graph_bytes(view(bytes, bytes_size)), options, program);
}
kiln_code kiln_compile_file(kiln_client* client, const char* path,
                            const kiln_compile_options* options, kiln_program** program) {
  if (client == nullptr || path == nullptr || program == nullptr)
    return missing("the client, the path or the place for the program");
  return compile_into(client, read_graph_file(path), options, program);
}
kiln_code kiln_submit(kiln_client* client, const void* bytes, size_t bytes_size,
                      const kiln_compile_options* given) {
  if (client == nullptr || bytes == nullptr) return missing("the client or the bytes");
  const auto exported = read_graph_bytes(view(bytes, bytes_size));
  if (!exported) return failed(exported.error());
  const auto options = compile_options(known(given));
  if (!options) return failed(options.error());
  return code_of(client->client->submit(exported->graph, *options).map([](const auto&) {}));
}
void kiln_program_close(kiln_program* program) {
  delete program;
}
kiln_successor kiln_program_successor_state(const kiln_program* program) {
  if (program->tiered == nullptr) return KILN_SUCCESSOR_NONE;
  switch (program->tiered->state()) {
    case TieredProgram::State::kAwaited:
      return KILN_SUCCESSOR_AWAITED;
    case TieredProgram::State::kTuned:
      return KILN_SUCCESSOR_READY;
    case TieredProgram::State::kGivenUp:
      break;
  }
  return KILN_SUCCESSOR_GIVEN_UP;
}
kiln_code kiln_program_successor(const kiln_program* program, kiln_program** successor) {
  if (program == nullptr || successor == nullptr)
    return missing("the program or the place for its successor");
  switch (kiln_program_successor_state(program)) {
    case KILN_SUCCESSOR_NONE:
      return failed({Code::kNotFound, "the program is what was asked for: it has no successor", 0});
    case KILN_SUCCESSOR_AWAITED:
      return failed({Code::kUnavailable, "the tuned program is not there yet: ask again later", 0});
    case KILN_SUCCESSOR_GIVEN_UP:
      return failed(program->tiered->error());
    case KILN_SUCCESSOR_READY:
      break;
  }
  *successor = described_as(program->tiered->current(), *program).release();
  return KILN_OK;
}

kiln_code kiln_refused_nodes(const void* json, size_t json_size,
                             void (*refused)(void*, int32_t, const char*, const char*),
                             void* user) {
  if (json == nullptr || refused == nullptr) return missing("the graph or the function");
  const auto found = refused_nodes(std::string(view(json, json_size)));
  if (!found) return failed(found.error());
  for (const RefusedNode& each : *found)
    refused(user, each.node, each.op.c_str(), each.why.c_str());
  return KILN_OK;
}

int32_t kiln_program_input_count(const kiln_program* program) {
  return static_cast<int32_t>(program->inputs.size());
}
int32_t kiln_program_output_count(const kiln_program* program) {
  return static_cast<int32_t>(program->outputs.size());
}
int32_t kiln_program_symbol_count(const kiln_program* program) {
  return static_cast<int32_t>(program->symbols.size());
}
const kiln_tensor* kiln_program_input(const kiln_program* program, int32_t index) {
  const Description* found = at(program->inputs, index);
  return found == nullptr ? nullptr : &found->tensor;
}
const kiln_tensor* kiln_program_output(const kiln_program* program, int32_t index) {
  const Description* found = at(program->outputs, index);
  return found == nullptr ? nullptr : &found->tensor;
}
const kiln_symbol* kiln_program_symbol(const kiln_program* program, int32_t index) {
  return at(program->symbols, index);
}
int32_t kiln_program_verified(const kiln_program* program) {
  return program->program->verified() ? 1 : 0;
}
const char* kiln_program_outcome(const kiln_program* program) {
  return program->outcome.c_str();
}
double kiln_program_seconds(const kiln_program* program) {
  return program->program->seconds();
}
const char* kiln_program_target(const kiln_program* program) {
  return program->target.c_str();
}
const char* kiln_program_manifest(const kiln_program* program) {
  return program->manifest.c_str();
}
const char* kiln_program_signature(const kiln_program* program) {
  return program->signature.c_str();
}

kiln_code kiln_program_bind(const kiln_program* program, const int64_t* const* sizes,
                            int64_t* symbols) {
  if (program->symbols.empty()) return KILN_OK;
  if (sizes == nullptr || symbols == nullptr) return missing("the sizes or the place for symbols");
  std::vector<std::span<const int64_t>> given;
  given.reserve(program->inputs.size());
  for (size_t i = 0; i < program->inputs.size(); ++i) {
    const std::vector<int64_t>& own = program->inputs[i].sizes;
    if (!program->flat_sizes[i].empty())
      given.emplace_back(program->flat_sizes[i]);
    else
      given.emplace_back(sizes[i] != nullptr ? sizes[i] : own.data(), own.size());
  }
  const auto bound = program->program->bind(given);
  if (!bound) return failed(bound.error());
  std::ranges::copy(*bound, symbols);
  return KILN_OK;
}
kiln_code kiln_program_bundle(const kiln_program* program, void* bytes, size_t* bytes_size) {
  if (bytes_size == nullptr) return missing("the place for the size");
  const auto bundle = bundle_of(*program->program);
  if (!bundle) return failed(bundle.error());
  if (bytes != nullptr && bundle->size() <= *bytes_size)
    std::ranges::copy(*bundle, static_cast<char*>(bytes));
  *bytes_size = bundle->size();
  return KILN_OK;
}
kiln_code kiln_program_output_sizes(const kiln_program* program, int32_t index,
                                    const int64_t* symbols, int64_t* sizes) {
  if (at(program->outputs, index) == nullptr || sizes == nullptr)
    return failed({Code::kInvalidArgument, "no such output, or no place for its sizes", 0});
  const int buffer = program->program->program().output_buffers[static_cast<size_t>(index)];
  const TensorSpec& spec = program->program->program().buffers[static_cast<size_t>(buffer)].spec;
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    const auto size = spec.shape[i].evaluate(symbols_of(program, symbols));
    if (!size) return failed(size.error());
    sizes[i] = *size;
  }
  return KILN_OK;
}
kiln_code kiln_program_arena_bytes(const kiln_program* program, const int64_t* symbols,
                                   int64_t* bytes) {
  if (bytes == nullptr) return missing("the place for the bytes");
  const auto needed = program->program->arena_bytes(symbols_of(program, symbols));
  if (!needed) return failed(needed.error());
  *bytes = *needed;
  return KILN_OK;
}
int64_t kiln_program_alignment(const kiln_program* program) {
  return program->program->alignment();
}
kiln_code kiln_program_launch(const kiln_program* program, void* const* inputs,
                              void* const* outputs, void* arena, void* stream,
                              const int64_t* symbols) {
  static_assert(sizeof(void*) == sizeof(DevicePtr));
  const std::span from{reinterpret_cast<const DevicePtr*>(inputs), program->inputs.size()};
  const std::span to{reinterpret_cast<const DevicePtr*>(outputs), program->outputs.size()};
  const auto sizes = symbols_of(program, symbols);
  const bool own_arena =
      arena == nullptr && program->program->program().target.backend != Backend::kCpu;
  return code_of(own_arena ? program->program->launch(from, to, stream, sizes)
                           : program->program->launch(from, to, reinterpret_cast<DevicePtr>(arena),
                                                      stream, sizes));
}

}  // extern "C"
