/* Every function of kiln.h, as a C program calls them.
 *   c_interface                     what needs no service
 *   c_interface COORDINATOR         what needs one
 *   c_interface COORDINATOR cancel  ends a call that waits
 * Says what went wrong and exits with 1. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/kiln.h"

#define EXPECT(condition)                                                                    \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "line %d: %s\n  last error: %s\n", __LINE__, #condition,               \
              kiln_last_error());                                                            \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

/* out = a * 0.5 + b, of any number of rows. */
static const char kHalfPlus[] =
    "kiln.graph 1\n"
    "s0 = symbol 1..4096 hint 32\n"
    "%0 = input 0 : f32[s0,16]\n"
    "%1 = input 1 : f32[s0,16]\n"
    "%2 = constant 0x1p-1 : f32[]\n"
    "%3 = view %2 strides=[0,0] offset=[0] : f32[s0,16]\n"
    "%4 = mul %0 %3 : f32[s0,16]\n"
    "%5 = exp %4 : f32[s0,16]\n"
    "%6 = reduce_sum %5 axes=[1] : f32[s0]\n"
    "%7 = add %4 %1 : f32[s0,16]\n"
    "return %7 %6\n";

#define TENSOR(sizes, strides)                                                                  \
  "{\"dtype\": 7, \"sizes\": " sizes ", \"requires_grad\": false, \"device\": {\"type\": \"cpu\", " \
  "\"index\": null}, \"strides\": " strides ", \"storage_offset\": {\"as_int\": 0}, \"layout\": 7}"
#define INPUT(name) "{\"name\": \"" name "\", \"arg\": {\"as_tensor\": {\"name\": \"x\"}}, \"kind\": 1}"
/* relu, then nonzero, which has no size that is known before it runs. */
static const char kNonzero[] =
    "{\"schema_version\": {\"major\": 8, \"minor\": 17}, \"range_constraints\": {}, \"graph_module\": {"
    "\"graph\": {\"inputs\": [{\"as_tensor\": {\"name\": \"x\"}}], \"outputs\": [], \"tensor_values\": {"
    "\"x\": " TENSOR("[{\"as_int\": 4}]", "[{\"as_int\": 1}]") ", "
    "\"y\": " TENSOR("[{\"as_int\": 4}]", "[{\"as_int\": 1}]") "}, \"nodes\": ["
    "{\"target\": \"torch.ops.aten.relu.default\", \"inputs\": [" INPUT("self") "], "
    "\"outputs\": [{\"as_tensor\": {\"name\": \"y\"}}], \"metadata\": {}},"
    "{\"target\": \"torch.ops.aten.nonzero.default\", \"inputs\": [" INPUT("self") "], "
    "\"outputs\": [{\"as_tensor\": {\"name\": \"z\"}}], \"metadata\": {}}]},"
    "\"signature\": {\"input_specs\": [{\"user_input\": {\"arg\": {\"as_tensor\": {\"name\": \"x\"}}}}],"
    "\"output_specs\": []}}}";

static void on_refused(void* user, int32_t node, const char* op, const char* why) {
  EXPECT(node == 1 && strcmp(op, "aten.nonzero.default") == 0 && strlen(why) > 10);
  ++*(int*)user;
}

static float* aligned(size_t count, int64_t alignment) {
  void* memory = NULL;
  EXPECT(posix_memalign(&memory, (size_t)alignment, count * sizeof(float) + 1) == 0);
  return memory;
}

/* Launches on `rows` rows and checks the numbers. */
static void launch(const kiln_program* program, int64_t rows) {
  const int64_t sizes[] = {rows, 16};
  const int64_t* all[] = {sizes, sizes};
  int64_t symbols[1], output[2] = {0, 0}, bytes = -1;
  EXPECT(kiln_program_bind(program, all, symbols) == KILN_OK && symbols[0] == rows);
  EXPECT(kiln_program_output_sizes(program, 0, symbols, output) == KILN_OK);
  EXPECT(output[0] == rows && output[1] == 16);
  EXPECT(kiln_program_arena_bytes(program, symbols, &bytes) == KILN_OK && bytes >= 0);
  const int64_t alignment = kiln_program_alignment(program);
  const size_t count = (size_t)(rows * 16);
  float* a = aligned(count, alignment);
  float* b = aligned(count, alignment);
  float* out = aligned(count, alignment);
  float* sums = aligned((size_t)rows, alignment);
  void* arena = aligned((size_t)bytes, KILN_ARENA_ALIGNMENT);
  for (size_t i = 0; i < count; ++i) {
    a[i] = (float)(i % 7);
    b[i] = (float)(i % 5);
  }
  void *inputs[] = {a, b}, *outputs[] = {out, sums};
  for (int repeat = 0; repeat < 50; ++repeat)
    EXPECT(kiln_program_launch(program, inputs, outputs, arena, NULL, symbols) == KILN_OK);
  for (size_t i = 0; i < count; ++i) EXPECT(out[i] == a[i] * 0.5F + b[i]);
  void* crooked[] = {(char*)a + 4, b};
  EXPECT(kiln_program_launch(program, crooked, outputs, arena, NULL, symbols) == KILN_INVALID_ARGUMENT);
  free(a), free(b), free(out), free(sums), free(arena);
}

/* Of inputs in the program's own order, which may be another: that it runs. */
static void launch_own(const kiln_program* program) {
  const int64_t sizes[] = {3, 16};
  const int64_t* all[] = {sizes, sizes};
  int64_t symbols[1], bytes = -1;
  EXPECT(kiln_program_bind(program, all, symbols) == KILN_OK);
  EXPECT(kiln_program_arena_bytes(program, symbols, &bytes) == KILN_OK);
  float* memory[4];
  for (int i = 0; i < 4; ++i) {
    memory[i] = aligned(48, kiln_program_alignment(program));
    memset(memory[i], 0, 48 * sizeof(float));
  }
  void *inputs[] = {memory[0], memory[1]}, *outputs[] = {memory[2], memory[3]};
  void* arena = aligned((size_t)bytes, KILN_ARENA_ALIGNMENT);
  EXPECT(kiln_program_launch(program, inputs, outputs, arena, NULL, symbols) == KILN_OK);
  EXPECT(memory[2][47] == 0.0F && memory[3][2] == 16.0F); /* 0 * 0.5 + 0, and 16 times exp(0) */
  for (int i = 0; i < 4; ++i) free(memory[i]);
  free(arena);
}

/* As dlpack.h has them. */
typedef struct DLTensor {
  void* data;
  struct { int32_t type, id; } device;
  int32_t rank;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *sizes, *strides;
  uint64_t byte_offset;
} DLTensor;
struct DLManagedTensor {
  DLTensor tensor;
  void* manager;
  void (*deleter)(struct DLManagedTensor* self);
};

/* Runs on DLPack's tensors, which own what they have; what does not fit is refused by name. */
static void run_dlpack(const kiln_program* program) {
  enum { kRows = 6 };
  float* memory = aligned(3 * kRows * 16, kiln_program_alignment(program));
  for (int i = 0; i < 3 * kRows * 16; ++i) memory[i] = (float)(i % 11);
  int64_t sizes[] = {kRows, 16}, sparse[] = {32, 1};
  struct DLManagedTensor a = {{memory, {1, 0}, 2, {2, 32, 1}, sizes, NULL, 0}, NULL, NULL};
  struct DLManagedTensor b = a;
  b.tensor.byte_offset = kRows * 16 * sizeof(float);
  struct DLManagedTensor *inputs[] = {&a, &b}, *outputs[2] = {NULL, NULL};
  EXPECT(kiln_program_run_dlpack(program, inputs, outputs, NULL) == KILN_OK);
  const DLTensor* out = &outputs[0]->tensor;
  EXPECT(out->rank == 2 && out->sizes[0] == kRows && out->sizes[1] == 16);
  EXPECT(out->strides[0] == 16 && out->strides[1] == 1 && out->device.type == 1);
  EXPECT(out->dtype.code == 2 && out->dtype.bits == 32 && out->dtype.lanes == 1);
  EXPECT(outputs[1]->tensor.rank == 1 && outputs[1]->tensor.sizes[0] == kRows);
  for (int i = 0; i < kRows * 16; ++i)
    EXPECT(((float*)out->data)[i] == memory[i] * 0.5F + memory[kRows * 16 + i]);
  for (int i = 0; i < 2; ++i) outputs[i]->deleter(outputs[i]);

  struct DLManagedTensor* none[2] = {NULL, NULL};
  struct DLManagedTensor crooked = b;
  crooked.tensor.strides = sparse;
  struct DLManagedTensor elsewhere = b;
  elsewhere.tensor.device.type = 2;
  struct DLManagedTensor whole = b;
  whole.tensor.dtype.code = 0;
  struct DLManagedTensor narrow = b;
  narrow.tensor.rank = 1;
  struct DLManagedTensor* wrong[] = {&crooked, &elsewhere, &whole, &narrow, NULL};
  for (int i = 0; i < 5; ++i) {
    inputs[1] = wrong[i];
    EXPECT(kiln_program_run_dlpack(program, inputs, none, NULL) == KILN_INVALID_ARGUMENT);
    EXPECT(none[0] == NULL && strstr(kiln_last_error(), "input ") != NULL);
  }
  EXPECT(kiln_program_run_dlpack(program, NULL, none, NULL) == KILN_INVALID_ARGUMENT);
  free(memory);
}

static void* launch_often(void* program) {
  for (int64_t rows = 1; rows < 40; rows += 3) launch(program, rows);
  return NULL;
}

static void check_description(const kiln_program* program) {
  EXPECT(kiln_program_input_count(program) == 2 && kiln_program_output_count(program) == 2);
  EXPECT(kiln_program_symbol_count(program) == 1);
  const kiln_tensor* input = kiln_program_input(program, 1);
  EXPECT(input->kind == KILN_KIND_USER && input->type_code == 2 && input->type_bits == 32);
  EXPECT(input->rank == 2 && input->sizes[0] == -1 && input->sizes[1] == 16);
  EXPECT(strcmp(input->shape, "[s0,16]") == 0 && input->strides == NULL && input->mutates == -1);
  EXPECT(kiln_program_output(program, 1)->rank == 1 && kiln_program_output(program, 2) == NULL);
  const kiln_symbol* symbol = kiln_program_symbol(program, 0);
  EXPECT(symbol->min == 1 && symbol->max == 4096 && symbol->tuned_at == 32);
  EXPECT(strncmp(kiln_program_target(program), "cpu:", 4) == 0);
  EXPECT(kiln_program_seconds(program) > 0);
  EXPECT(strstr(kiln_program_manifest(program), "\"launches\"") != NULL);
}

static void without_a_service(void) {
  EXPECT(kiln_abi_version() == KILN_ABI_VERSION && strcmp(kiln_version(), "0.1.0") == 0);
  EXPECT(kiln_last_error_code() == KILN_OK && strcmp(kiln_last_error(), "") == 0);
  kiln_client* client = NULL;
  EXPECT(kiln_client_open(NULL, &client) == KILN_OK);
  EXPECT(kiln_client_service(client) == KILN_SERVICE_UNKNOWN);
  EXPECT(kiln_client_load_bundle(client, "/nonexistent", NULL, NULL) == KILN_NOT_FOUND);

  kiln_program* program = NULL;
  EXPECT(kiln_compile(client, "nonsense", 8, NULL, &program) == KILN_INVALID_ARGUMENT);
  EXPECT(kiln_last_error_code() == KILN_INVALID_ARGUMENT && strlen(kiln_last_error()) > 10);
  EXPECT(kiln_compile_file(client, "/nowhere.pt2", NULL, &program) == KILN_NOT_FOUND);
  EXPECT(kiln_open_exported(client, "/nowhere", KILN_UNSIGNED, NULL, &program) == KILN_NOT_FOUND);
  EXPECT(strstr(kiln_last_error(), "kiln compile FILE --out DIR") != NULL);
  EXPECT(kiln_submit(client, kHalfPlus, strlen(kHalfPlus), NULL) == KILN_UNAVAILABLE);
  kiln_compile_options cached = {.size = sizeof cached, .cached_only = 1};
  EXPECT(kiln_compile(client, kHalfPlus, strlen(kHalfPlus), &cached, &program) == KILN_NOT_FOUND);

  EXPECT(kiln_compile(client, kHalfPlus, strlen(kHalfPlus), NULL, &program) == KILN_OK);
  kiln_client_close(client); /* the program outlives it */
  EXPECT(strcmp(kiln_program_outcome(program), "local") == 0);
  EXPECT(kiln_program_verified(program) == 0);
  kiln_program* successor = NULL;
  EXPECT(kiln_program_successor_state(program) == KILN_SUCCESSOR_NONE);
  EXPECT(kiln_program_successor(program, &successor) == KILN_NOT_FOUND && successor == NULL);
  EXPECT(strcmp(kiln_program_signature(program), "") == 0);
  size_t bytes = 0;
  EXPECT(kiln_program_bundle(program, NULL, &bytes) == KILN_INVALID_ARGUMENT);
  check_description(program);
  const int64_t wrong[] = {5000, 16};
  const int64_t* all[] = {wrong, wrong};
  int64_t symbols[1];
  EXPECT(kiln_program_bind(program, all, symbols) == KILN_INVALID_ARGUMENT);
  run_dlpack(program);
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) EXPECT(pthread_create(&threads[i], NULL, launch_often, program) == 0);
  for (int i = 0; i < 3; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
  kiln_program_close(program);

  int refused = 0;
  EXPECT(kiln_refused_nodes(kNonzero, strlen(kNonzero), on_refused, &refused) == KILN_OK);
  EXPECT(refused == 1);
}

/* A program that is fetched, but not loaded. */
static void fetched_only(void) {
  kiln_client* client = NULL;
  kiln_program* program = NULL;
  EXPECT(kiln_client_open(NULL, &client) == KILN_OK);
  kiln_compile_options fetched = {.size = sizeof fetched, .fetch_only = 1};
  EXPECT(kiln_compile(client, kHalfPlus, strlen(kHalfPlus), &fetched, &program) == KILN_OK);
  EXPECT(kiln_program_input_count(program) > 0 && kiln_program_alignment(program) == 0);
  kiln_program_close(program);
  fetched.now = 1;
  fetched.mode = KILN_MODE_MAX_AUTOTUNE;
  EXPECT(kiln_compile(client, kHalfPlus, strlen(kHalfPlus), &fetched, &program) ==
         KILN_INVALID_ARGUMENT);
  kiln_client_close(client);
}

/* What a client has that was given the program's bundle, and neither a service nor a compiler. */
static void bundled(const kiln_program* program) {
  size_t size = 0, room;
  EXPECT(kiln_program_bundle(program, NULL, &size) == KILN_OK && size > 1000);
  char* bytes = malloc(size);
  room = size - 1;
  bytes[0] = 0;
  EXPECT(kiln_program_bundle(program, bytes, &room) == KILN_OK && room == size && bytes[0] == 0);
  EXPECT(kiln_program_bundle(program, bytes, &room) == KILN_OK && room == size);
  char signer[65] = "";
  memcpy(signer, kiln_program_signature(program) + strlen("ed25519 "), 64);
  const kiln_client_options alone = {.size = sizeof alone, .compiler = "/bin/false"};
  kiln_client* client = NULL;
  EXPECT(kiln_client_open(&alone, &client) == KILN_OK);
  int32_t programs = 0;
  EXPECT(kiln_client_add_bundle(client, bytes, size, NULL, NULL) == KILN_INVALID_ARGUMENT);
  bytes[size / 2] ^= 1;
  EXPECT(kiln_client_add_bundle(client, bytes, size, signer, NULL) == KILN_CORRUPTION);
  bytes[size / 2] ^= 1;
  EXPECT(kiln_client_add_bundle(client, bytes, size, signer, &programs) == KILN_OK && programs == 1);
  const kiln_compile_options tuned = {.size = sizeof tuned, .mode = KILN_MODE_MAX_AUTOTUNE};
  kiln_program* again = NULL;
  EXPECT(kiln_compile(client, kHalfPlus, strlen(kHalfPlus), &tuned, &again) == KILN_OK);
  EXPECT(strcmp(kiln_program_outcome(again), "hit") == 0);
  launch(again, 33);
  kiln_program_close(again);
  kiln_client_close(client);
  free(bytes);
}

/* The same program for a client that has no graph: by its digest, and by a lock file. */
static void by_digest(const char* coordinator, const kiln_program* program) {
  static const char kGraph[] = "\"graph\":\"";
  const char* at = strstr(kiln_program_manifest(program), kGraph);
  EXPECT(at != NULL);
  char digest[65] = "", path[] = "/tmp/kiln-lock-XXXXXX";
  memcpy(digest, at + strlen(kGraph), 64);
  const kiln_client_options where = {
      .size = sizeof where, .coordinator = coordinator, .compiler = "/bin/false"};
  kiln_client* client = NULL;
  kiln_program* loaded = NULL;
  EXPECT(kiln_client_open(&where, &client) == KILN_OK);
  kiln_compile_options options = {.size = sizeof options, .mode = KILN_MODE_MAX_AUTOTUNE};
  EXPECT(kiln_load_digest(client, digest, &options, &loaded) == KILN_OK);
  EXPECT(strcmp(kiln_program_outcome(loaded), "hit") == 0);
  EXPECT(kiln_program_input_count(loaded) == 2 && kiln_program_output_count(loaded) == 2);
  EXPECT(strcmp(kiln_program_input(loaded, 0)->name, "") == 0);
  launch_own(loaded);
  kiln_program_close(loaded);
  options.now = 1;
  EXPECT(kiln_load_digest(client, digest, &options, &loaded) == KILN_INVALID_ARGUMENT);
  EXPECT(kiln_load_digest(client, "a graph", NULL, &loaded) == KILN_INVALID_ARGUMENT);
  digest[0] = digest[0] == '0' ? '1' : '0';
  EXPECT(kiln_load_digest(client, digest, NULL, &loaded) == KILN_NOT_FOUND);
  EXPECT(strstr(kiln_last_error(), "send the graph once") != NULL);

  EXPECT(kiln_load_locked(client, "/nowhere.lock", NULL, NULL, &loaded) == KILN_NOT_FOUND);
  const int file = mkstemp(path);
  EXPECT(file >= 0);
  dprintf(file, "kiln-lock 2\nprogram a.pt2\ntarget cpu\nmode max-autotune\ngraph %.64s\ndigest %.64s\n",
          at + strlen(kGraph), digest);
  EXPECT(kiln_load_locked(client, path, "b", NULL, &loaded) == KILN_INVALID_ARGUMENT);
  EXPECT(kiln_load_locked(client, path, "a", NULL, &loaded) == KILN_NOT_FOUND);
  EXPECT(strstr(kiln_last_error(), "a.pt2 is not as") != NULL); /* that digest is of nothing */
  close(file), remove(path);
  kiln_client_close(client);
}

static int32_t count_progress(void* user, const kiln_progress* progress) {
  EXPECT(progress->kernels_done <= progress->kernels);
  ++*(int*)user;
  return 0;
}
static int32_t end_the_call(void* user, const kiln_progress* progress) {
  (void)progress;
  ++*(int*)user;
  return 1;
}

/* This service hands out no links: tests/python/test_links.py has one that does. */
static void read_no_links(void* user, const char* const* urls, int32_t count, int64_t timeout_ms,
                          kiln_links* links) {
  (void)user;
  EXPECT(count > 0 && strlen(urls[0]) > 0 && timeout_ms > 0);
  kiln_link_read(links, count, "there is no such place", 22);
}

static const char kTanh[] =
    "kiln.graph 1\n%0 = input 0 : f32[64,1024]\n%1 = tanh %0 : f32[64,1024]\nreturn %1\n";

static void with_a_service(const char* coordinator, int cancel) {
  kiln_link_read(NULL, 0, "nobody asked", 12);
  const kiln_client_options where = {.size = sizeof where,
                                     .coordinator = coordinator,
                                     .connect_timeout_ms = 60000,
                                     .no_fallback = 1,
                                     .read_links = read_no_links};
  kiln_client* client = NULL;
  EXPECT(kiln_client_open(&where, &client) == KILN_OK);
  int calls = 0;
  kiln_compile_options options = {.size = sizeof options,
                                  .mode = KILN_MODE_MAX_AUTOTUNE,
                                  .deadline_ms = 120000,
                                  .on_progress = cancel ? end_the_call : count_progress,
                                  .user = &calls};
  kiln_program* program = NULL;
  /* Another graph than that which is compiled to the end: its tuning may go on for a while. */
  const char* graph = cancel ? kTanh : kHalfPlus;
  const kiln_code code = kiln_compile(client, graph, strlen(graph), &options, &program);
  EXPECT(kiln_client_service(client) == KILN_SERVICE_REACHABLE && calls > 0);
  if (cancel) {
    EXPECT(code == KILN_DEADLINE_EXCEEDED && strstr(kiln_last_error(), "cancelled") != NULL);
  } else {
    EXPECT(code == KILN_OK && strcmp(kiln_program_outcome(program), "tuned") == 0);
    EXPECT(kiln_program_verified(program) == 1);
    EXPECT(strncmp(kiln_program_signature(program), "ed25519 ", 8) == 0);
    check_description(program);
    launch(program, 33);
    bundled(program);
    by_digest(coordinator, program);
    kiln_program_close(program);
    EXPECT(kiln_submit(client, kHalfPlus, strlen(kHalfPlus), &options) == KILN_OK);
  }
  kiln_client_close(client);
}

static void artifacts_without_a_service(void) {
  kiln_artifacts* artifacts = NULL;
  EXPECT(kiln_artifacts_open(NULL, &artifacts) == KILN_INVALID_ARGUMENT);
  const kiln_artifacts_options nowhere = {.size = sizeof nowhere, .coordinator = "tcp://127.0.0.1:1"};
  EXPECT(kiln_artifacts_open(&nowhere, &artifacts) == KILN_OK);
  const kiln_artifact_options soon = {.size = sizeof soon, .timeout_ms = 50};
  kiln_artifact* artifact = NULL;
  EXPECT(kiln_artifact_get(artifacts, "inductor.gemm", "k", &soon, &artifact) == KILN_UNAVAILABLE);
  EXPECT(artifact == NULL);
  kiln_artifacts_close(artifacts);
}

static void candidates_with_a_service(const char* coordinator) {
  static const char kGraph[] =
      "kiln.graph 1\n%0 = input 0 : f32[100]\n%1 = sin %0 : f32[100]\nreturn %1\n";
  static const char kSource[] =
      "static void f(const float* x, float* out, int64_t begin, int64_t end) {\n"
      "  for (int64_t i = begin; i < end; ++i) out[i] = __builtin_sinf(x[i]);\n}\n";
  static const int32_t kArguments[] = {0, -1};
  const kiln_artifacts_options where = {.size = sizeof where, .coordinator = coordinator};
  kiln_artifacts* artifacts = NULL;
  EXPECT(kiln_artifacts_open(&where, &artifacts) == KILN_OK);
  kiln_candidate candidate = {.size = sizeof candidate, .name = "mine", .function = "f"};
  char schedule[64] = "";
  EXPECT(kiln_candidate_put(artifacts, kGraph, strlen(kGraph), &candidate, schedule, sizeof schedule,
                            20000) == KILN_INVALID_ARGUMENT);
  candidate.source = kSource;
  candidate.arguments = kArguments;
  candidate.arguments_size = 1;
  EXPECT(kiln_candidate_put(artifacts, kGraph, strlen(kGraph), &candidate, schedule, sizeof schedule,
                            20000) == KILN_INVALID_ARGUMENT);
  EXPECT(strstr(kiln_last_error(), "not given output 0") != NULL);
  candidate.arguments_size = 2;
  EXPECT(kiln_candidate_put(artifacts, kGraph, strlen(kGraph), &candidate, schedule, sizeof schedule,
                            20000) == KILN_OK);
  EXPECT(strncmp(schedule, "offered.mine.", 13) == 0);
  kiln_artifacts_close(artifacts);
}

static void artifacts_with_a_service(const char* coordinator) {
  static const char kTimings[] = "{\"aten\": 0.25}";
  const kiln_artifacts_options where = {.size = sizeof where, .coordinator = coordinator};
  kiln_artifacts *maker = NULL, *other = NULL;
  EXPECT(kiln_artifacts_open(&where, &maker) == KILN_OK);
  EXPECT(kiln_artifacts_open(&where, &other) == KILN_OK);
  const kiln_artifact_options make = {.size = sizeof make, .timeout_ms = 20000, .lease_ms = 60000};
  kiln_artifact* artifact = NULL;
  EXPECT(kiln_artifact_get(maker, "inductor.gemm", "k", &make, &artifact) == KILN_OK);
  EXPECT(artifact->bytes == NULL && artifact->lease != 0 && !artifact->leased);
  EXPECT(kiln_artifact_release(maker, artifact->lease, 20000) == KILN_OK);
  kiln_artifact_free(artifact);
  EXPECT(kiln_artifact_get(maker, "inductor.gemm", "k", &make, &artifact) == KILN_OK);
  EXPECT(artifact->lease != 0);
  kiln_artifact_free(artifact);
  EXPECT(kiln_artifact_get(other, "inductor.gemm", "k", &make, &artifact) == KILN_OK);
  EXPECT(artifact->bytes == NULL && artifact->lease == 0 && artifact->leased);
  kiln_artifact_free(artifact);
  EXPECT(kiln_artifact_put(maker, "inductor.gemm", "k", "pickle", 6, 20000) == KILN_INVALID_ARGUMENT);
  EXPECT(kiln_artifact_put(maker, "inductor.gemm", "k", kTimings, strlen(kTimings), 20000) == KILN_OK);
  EXPECT(kiln_artifact_get(other, "inductor.gemm", "k", NULL, &artifact) == KILN_OK);
  EXPECT(artifact->bytes_size == strlen(kTimings));
  EXPECT(memcmp(artifact->bytes, kTimings, artifact->bytes_size) == 0);
  kiln_artifact_free(artifact);
  EXPECT(kiln_artifact_get(other, "no.such_kind", "k", NULL, &artifact) == KILN_UNSUPPORTED);
  kiln_artifacts_close(maker);
  kiln_artifacts_close(other);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    with_a_service(argv[1], argc > 2);
    if (argc == 2) artifacts_with_a_service(argv[1]);
    if (argc == 2) candidates_with_a_service(argv[1]);
  } else {
    without_a_service();
    fetched_only();
    artifacts_without_a_service();
  }
  return 0;
}
