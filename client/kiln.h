/* Kiln's C interface: compile a captured graph and launch it on memory of your own. C11, no other
 * header needed, and no dependency but libkiln.so, which exports what this file declares and nothing
 * else. The C++ client (client.h) stands on the same objects.
 *
 *   kiln_client_options where = {.size = sizeof where, .coordinator = "tcp://127.0.0.1:7557"};
 *   kiln_client* client;
 *   kiln_program* program;
 *   if (kiln_client_open(&where, &client)) fail(kiln_last_error());
 *   if (kiln_compile(client, bytes, size, NULL, &program)) fail(kiln_last_error());
 *   int64_t arena_bytes;
 *   kiln_program_arena_bytes(program, NULL, &arena_bytes);
 *   kiln_program_launch(program, inputs, outputs, arena, NULL, NULL);
 *
 * Errors: a function that can fail returns a kiln_code; KILN_OK is 0. kiln_last_error() has the
 * sentence, of the calling thread's last call that failed.
 * Threads: any thread may call any function, several at once on one object. Closing an object while
 * a call on it runs is the caller's mistake. A program may outlive its client.
 * Versions: structures of options begin with their size, and a zero field means its default, so that
 * a program built with an older header runs with a newer library. Structures that the library
 * returns may grow at their end. Values of enums are never renumbered. */
#ifndef KILN_H
#define KILN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_API __attribute__((visibility("default")))
/* Raised when something that was there changes its meaning: then no older caller runs. */
#define KILN_ABI_VERSION 1

/* The library's own KILN_ABI_VERSION, and its version: "0.1.0". */
KILN_API int32_t kiln_abi_version(void);
KILN_API const char* kiln_version(void);

/* ---- Errors */

/* What the caller does next. */
typedef enum kiln_code {
  KILN_OK = 0,
  KILN_INVALID_ARGUMENT = 1,  /* fix the input */
  KILN_UNSUPPORTED = 2,       /* an operation Kiln does not cover, or a target this machine lacks */
  KILN_NOT_FOUND = 3,         /* no such file, or (cached_only) no such program in any cache */
  KILN_OVERLOADED = 4,        /* try again later */
  KILN_UNAVAILABLE = 5,       /* no service and no fallback, or no worker for the target */
  KILN_DEADLINE_EXCEEDED = 6, /* the deadline passed, or on_progress ended the call */
  KILN_CORRUPTION = 7,        /* the program is not what was signed */
  KILN_PERMISSION_DENIED = 8, /* the key may not ask this, or somebody else signed the program */
  KILN_INTERNAL = 9           /* a bug in Kiln */
} kiln_code;

/* Of this thread's last call that failed; KILN_OK and "" before. Valid until the next one. */
KILN_API kiln_code kiln_last_error_code(void);
KILN_API const char* kiln_last_error(void);

/* ---- Client */

typedef struct kiln_client kiln_client;

/* A service with --blob-links hands out links to binaries in its object store, each good for 15
 * minutes, and sends itself what the client cannot get there. A client that can read them has a
 * kiln_read_links: it GETs each of `count` URLs, side by side, follows no redirect, and hands what
 * came to kiln_link_read(), from any thread; it returns when all is done or `timeout_ms` is over, and
 * leaves out what it could not get. What comes is checked like all binaries. libkiln itself reads no
 * URLs. Called on the thread of a call that needs binaries; several may at once. */
typedef struct kiln_links kiln_links;
typedef void (*kiln_read_links)(void* user, const char* const* urls, int32_t count,
                                int64_t timeout_ms, kiln_links* links);
/* The bytes, copied, at urls[index]; their last read counts. Other places are ignored. */
KILN_API void kiln_link_read(kiln_links* links, int32_t index, const void* bytes, size_t size);

typedef struct kiln_client_options {
  size_t size;             /* sizeof(kiln_client_options) */
  const char* coordinator; /* "tcp://127.0.0.1:7557"; several coordinators of one store with commas
                              between; NULL: no service, this machine compiles */
  const char* key_file;    /* what `kiln keys new` wrote; NULL: none */
  const char* cache_dir;   /* keeps programs on this machine; NULL: none */
  const char* signing_key; /* 64 hex digits that every program is signed with; NULL: as client.h */
  const char* compiler;    /* of programs compiled here; NULL: the first of g++, c++, clang++ */
  const char* libcuda;     /* NULL: libcuda.so.1 */
  const char* libnvrtc;    /* NULL: the usual places */
  int64_t cache_bytes;     /* bound of cache_dir; 0: 10 GiB */
  int32_t connect_timeout_ms; /* 0: 2000 */
  int32_t threads;            /* of launches on the CPU; 0: every core this process may use */
  int32_t no_fallback;        /* 1: when the service is away, fail instead of compiling here */
  int32_t open_gpu;           /* 1: open the GPU now, in the background */
  kiln_read_links read_links; /* NULL: the service sends every binary */
  void* read_links_user;
  /* cuBLASLt, for kernels that call it: its file, or the folder of a CUDA toolkit or Python environment;
   * NULL: the usual places; "none": no library is called, Kiln's own kernels run instead. */
  const char* libcublaslt;
  /* The GPU that programs run on, as the driver counts those of this process; 0: the first. */
  int32_t gpu;
} kiln_client_options;

/* Contacts nobody. `options`
 * may be NULL. */
KILN_API kiln_code kiln_client_open(const kiln_client_options* options, kiln_client** client);
KILN_API void kiln_client_close(kiln_client* client);

/* Reads a bundle, the file that `kiln bundle` wrote: from now on kiln_compile() answers with its
 * programs before it asks anybody. `signer`: whose signature is good, 64 hex digits or a file with
 * them; NULL: the client's signing_key. `programs` hears how many there are; may be NULL.
 * KILN_NOT_FOUND: no such file; KILN_INVALID_ARGUMENT: no bundle, or no signer is known;
 * KILN_UNSUPPORTED: a newer Kiln wrote it; KILN_PERMISSION_DENIED: signed by somebody else;
 * KILN_CORRUPTION: cut short or altered, and nothing of it is used. */
KILN_API kiln_code kiln_client_load_bundle(kiln_client* client, const char* path,
                                           const char* signer, int32_t* programs);

/* The same of a bundle's bytes, as kiln_program_bundle() gives them. */
KILN_API kiln_code kiln_client_add_bundle(kiln_client* client, const void* bytes, size_t bytes_size,
                                          const char* signer, int32_t* programs);

/* KILN_SERVICE_AWAY: it failed a moment ago, and calls do not wait for it again yet. */
typedef enum kiln_service {
  KILN_SERVICE_UNKNOWN = 0,
  KILN_SERVICE_REACHABLE = 1,
  KILN_SERVICE_AWAY = 2
} kiln_service;
KILN_API kiln_service kiln_client_service(const kiln_client* client);

/* ---- Compiling */

typedef struct kiln_program kiln_program;

typedef enum kiln_mode {
  KILN_MODE_DEFAULT = 0,     /* the cost model's first choice */
  KILN_MODE_MAX_AUTOTUNE = 1 /* search and measure */
} kiln_mode;

typedef struct kiln_progress {
  int32_t kernels, kernels_done, candidates, candidates_done;
  double elapsed_s;
} kiln_progress;

typedef struct kiln_compile_options {
  size_t size;        /* sizeof(kiln_compile_options) */
  const char* target; /* "cpu", "cuda", "cuda:sm_90a"; NULL: "cpu" */
  kiln_mode mode;
  int32_t cached_only;     /* 1: start nothing; KILN_NOT_FOUND when no cache has the program */
  int32_t reduce_overhead; /* 1: launches without an arena are replayed as a CUDA graph */
  int32_t background;      /* 1: nobody waits; the service serves others first */
  int64_t deadline_ms;     /* of the whole call; 0: 600 000 */
  /* Called on the calling thread when the service reports, and every 100 ms while the call waits
   * for it; returning other than 0 ends the call with KILN_DEADLINE_EXCEEDED. NULL: none. */
  int32_t (*on_progress)(void* user, const kiln_progress* progress);
  void (*on_message)(void* user, const char* sentence); /* for a person; NULL: none */
  void* user;
  int32_t strict; /* 1: no program that older kernel templates made; waits for its successor */
  int32_t verify; /* 1: waits until a DEFAULT program's results are compared with a reference */
  /* The caller's span, as W3C Trace Context's header says it: what the service does for the call is
   * traced below it. NULL: none. */
  const char* traceparent;
  /* 1: a MAX_AUTOTUNE program that is not tuned yet is answered at once, with the best there is: of
   * outcome "tier0", the DEFAULT program. kiln_program_successor() has the tuned one, later. */
  int32_t now;
  /* 1: the program is fetched and checked, but not loaded: for machines without its device. It
   * describes itself and gives its bundle; a launch is KILN_UNSUPPORTED. Not with `now`. */
  int32_t fetch_only;
} kiln_compile_options;

/* The program of a graph, loaded and ready to launch here, unless `fetch_only`. `bytes`: a .pt2
 * archive of torch.export.save, its models/model.json alone, or Kiln's text form. `options`
 * may be NULL. */
KILN_API kiln_code kiln_compile(kiln_client* client, const void* bytes, size_t bytes_size,
                                const kiln_compile_options* options, kiln_program** program);
/* The same of a file. */
KILN_API kiln_code kiln_compile_file(kiln_client* client, const char* path,
                                     const kiln_compile_options* options, kiln_program** program);
/* The program of a graph that somebody compiled before, by the digest that `kiln digest` prints (64 hex
 * digits) and the target and mode of `options`: from this process, a bundle, cache_dir or the service.
 * It starts nothing, and needs neither the model nor a compiler. Inputs have no names and are
 * the program's own, in the order of its manifest. KILN_NOT_FOUND: nobody has it, and what to do;
 * KILN_UNAVAILABLE: the service is away, and this machine has it not. Not with `now` or
 * `fetch_only`. */
KILN_API kiln_code kiln_load_digest(kiln_client* client, const char* digest,
                                    const kiln_compile_options* options, kiln_program** program);
/* The same of a program of the file that `kiln lock` wrote: with the target and mode that stand there, and
 * the model's own inputs, by name, but for files of before, which lack them. `name`: the model's file as it
 * stands there, or its stem ("softmax" of "models/softmax.pt2"); NULL: the file has one program.
 * A target in `options` says which, where there are several of the name. An input that the program does
 * not read has type_bits 0, and any address. KILN_INVALID_ARGUMENT: no lock
 * file, or the programs that it has; KILN_NOT_FOUND: also, what there is now is not what was locked. */
KILN_API kiln_code kiln_load_locked(kiln_client* client, const char* path, const char* name,
                                    const kiln_compile_options* options, kiln_program** program);
/* The program that `kiln compile --out DIR` wrote, with the model's inputs in order, without names, up
 * to the last that it reads; target and mode of `options` do not count. Asks nobody. `signer`: whose signature
 * of program and binding is good, as kiln_client_load_bundle() has it; KILN_UNSIGNED: the caller vouches for the
 * directory, which is code, and no signature is looked at. KILN_NOT_FOUND: no program there;
 * KILN_UNSUPPORTED: for another machine; KILN_PERMISSION_DENIED: unsigned, or signed by somebody else;
 * KILN_CORRUPTION: altered. */
KILN_API kiln_code kiln_open_exported(kiln_client* client, const char* directory,
                                      const char* signer, const kiln_compile_options* options,
                                      kiln_program** program);
#define KILN_UNSIGNED "unsigned"
/* Has the service tune the program though nobody waits: returns once the request is on its disk. */
KILN_API kiln_code kiln_submit(kiln_client* client, const void* bytes, size_t bytes_size,
                               const kiln_compile_options* options);
KILN_API void kiln_program_close(kiln_program* program);

/* Of a program that was compiled with `now`, its outcome "tier0" or "stale": waits in the background
 * for the tuned one, until that is there or the program is closed. */
typedef enum kiln_successor {
  KILN_SUCCESSOR_NONE = 0,    /* the program is what was asked for */
  KILN_SUCCESSOR_AWAITED = 1, /* being tuned */
  KILN_SUCCESSOR_READY = 2,
  KILN_SUCCESSOR_GIVEN_UP = 3 /* it cannot be tuned; the program stays right */
} kiln_successor;
KILN_API kiln_successor kiln_program_successor_state(const kiln_program* program);
/* The tuned program, a new object that the caller closes; each call gives one. Its inputs, outputs and
 * symbols are in the same order; its arena_bytes are its own. A caller swaps between two launches, and
 * closes the old program when its launches are done. KILN_UNAVAILABLE: it is AWAITED; KILN_NOT_FOUND:
 * there is NONE; GIVEN_UP: why. */
KILN_API kiln_code kiln_program_successor(const kiln_program* program, kiln_program** successor);

/* Calls `refused` for each node of a models/model.json that Kiln does not cover with the arguments
 * it has: its place among the graph's nodes, its op, and why. What follows such a node is judged as
 * if its outputs were given. Asks nobody. */
KILN_API kiln_code kiln_refused_nodes(const void* json, size_t json_size,
                                      void (*refused)(void* user, int32_t node, const char* op,
                                                      const char* why),
                                      void* user);

/* ---- What a program takes and gives */

/* Of a tensor. Inputs: USER, PARAMETER, BUFFER, CONSTANT, and SEED, an i64 scalar that comes last
 * where the program is random. Outputs: USER, and MUTATION, the new value of an input. */
typedef enum kiln_kind {
  KILN_KIND_USER = 0,
  KILN_KIND_PARAMETER = 1,
  KILN_KIND_BUFFER = 2,
  KILN_KIND_CONSTANT = 3,
  KILN_KIND_SEED = 4,
  KILN_KIND_MUTATION = 5
} kiln_kind;

typedef struct kiln_tensor {
  const char* name; /* "net.0.weight", "x"; of a mutation, the input's; "" where there is none */
  kiln_kind kind;
  /* As DLPack's DLDataType has them: {2, 32} is f32. {0, 0}: an input that the program does not read. */
  uint8_t type_code, type_bits;
  int16_t rank;
  const int64_t* sizes;   /* -1 where a size depends on the call */
  const char* shape;      /* "[s0,128]", with the symbols */
  const int64_t* strides; /* of an input, in elements; NULL: dense row-major, as all outputs are */
  int32_t mutates;        /* of a mutation, the input whose new value it is; else -1 */
  /* Of an output: the input whose memory may be given for it too; else -1. What the program does not change of it is
   * then not copied: a cache of which a step writes one row. */
  int32_t updates;
} kiln_tensor;

/* A size that calls choose, within its range. */
typedef struct kiln_symbol {
  int64_t min, max;
  int64_t tuned_at;
} kiln_symbol;

KILN_API int32_t kiln_program_input_count(const kiln_program* program);
KILN_API int32_t kiln_program_output_count(const kiln_program* program);
KILN_API int32_t kiln_program_symbol_count(const kiln_program* program);
/* Valid as long as the program; NULL beyond the count. */
KILN_API const kiln_tensor* kiln_program_input(const kiln_program* program, int32_t index);
KILN_API const kiln_tensor* kiln_program_output(const kiln_program* program, int32_t index);
KILN_API const kiln_symbol* kiln_program_symbol(const kiln_program* program, int32_t index);

/* How it was got: "tuned", "joined" (tuned for another client), "hit", "local", "stale" (right, made
 * by kernel templates of another version; its successor is being tuned), "tier0" (`now`). */
KILN_API const char* kiln_program_outcome(const kiln_program* program);
/* 1: its kernels' results were compared with a reference. 0: it was compiled here, or answered as soon
 * as it was compiled; where the service finds it wrong, launches are KILN_UNAVAILABLE once this client
 * has heard of it. */
KILN_API int32_t kiln_program_verified(const kiln_program* program);
KILN_API double kiln_program_seconds(const kiln_program* program);       /* the call that got it */
KILN_API const char* kiln_program_target(const kiln_program* program);   /* "cpu:x86-64-v3" */
KILN_API const char* kiln_program_manifest(const kiln_program* program); /* JSON: program.h */
/* "ed25519 SIGNER SIGNATURE" of the manifest, in hex; "" for a program compiled here. */
KILN_API const char* kiln_program_signature(const kiln_program* program);

/* The program and its binaries as a bundle, for a client that has neither a service nor a compiler.
 * `bytes_size` has the room at `bytes` and hears how many there are; where the room is too small, or
 * `bytes` is NULL, nothing is written. KILN_INVALID_ARGUMENT: no coordinator signed the program. */
KILN_API kiln_code kiln_program_bundle(const kiln_program* program, void* bytes,
                                       size_t* bytes_size);

/* ---- Launching */

/* Sets `symbols`, one for each of the program's, to what the inputs' sizes say; `sizes[i]` has
 * input i's, and may be NULL where its sizes are constants. KILN_INVALID_ARGUMENT names the input
 * and axis that the program does not serve. */
KILN_API kiln_code kiln_program_bind(const kiln_program* program, const int64_t* const* sizes,
                                     int64_t* symbols);
/* The sizes of an output, as many as its rank. `symbols` here and below: as kiln_program_bind() gave
 * them; NULL when the program has none. */
KILN_API kiln_code kiln_program_output_sizes(const kiln_program* program, int32_t index,
                                             const int64_t* symbols, int64_t* sizes);
/* Memory for what lies between inputs and outputs. */
KILN_API kiln_code kiln_program_arena_bytes(const kiln_program* program, const int64_t* symbols,
                                            int64_t* bytes);
/* In bytes, of inputs and outputs: 64 on the CPU, 16 on a GPU. An arena: KILN_ARENA_ALIGNMENT. */
KILN_API int64_t kiln_program_alignment(const kiln_program* program);
#define KILN_ARENA_ALIGNMENT 256

/* Puts the work on `stream`, a CUstream, and returns; on the CPU `stream` is NULL and the work is
 * done on return. Inputs and outputs lie in the device's memory, in order, with the dtypes, sizes
 * and strides above, which cannot be checked; the arena is this launch's own until the stream has
 * passed it. Re-entrant. A NULL arena: the program uses one of its own, kept for such launches,
 * which the caller orders one after the other (on a GPU only). */
KILN_API kiln_code kiln_program_launch(const kiln_program* program, void* const* inputs,
                                       void* const* outputs, void* arena, void* stream,
                                       const int64_t* symbols);
/* The same on tensors as DLPack has them (dlpack.h, which is not needed here). Inputs stay the caller's: device,
 * dtype, sizes and strides are checked, nothing is copied, and an input that the program does not read may be NULL.
 * `outputs[i]` becomes a new tensor on the program's device, dense row-major, which its deleter gives back; on a GPU
 * not before the stream has passed the launch. Allocates for each call: kiln_program_launch() does not.
 * KILN_INVALID_ARGUMENT names the input that does not fit; then no output is made. */
struct DLManagedTensor;
KILN_API kiln_code kiln_program_run_dlpack(const kiln_program* program,
                                           struct DLManagedTensor* const* inputs,
                                           struct DLManagedTensor** outputs, void* stream);

/* ---- Artifacts of other compilers
 *
 * Values that a coordinator keeps for a fleet, by kind and key, and does not understand: Inductor's
 * cache entries and timings. Kinds: "inductor.gemm" and "inductor.autotune", which are one flat JSON
 * object; "inductor.fx_graph", "inductor.aot_autograd" and "vllm.aot", which their readers
 * unpickle, and "triton.group" and "kiln.candidate" (below), which have binaries: only a key of the
 * role publish may put those. Nothing comes out that the coordinator's key did not sign. Every call
 * has a deadline, and none is repeated for long: a cache that is away is a miss. */

typedef struct kiln_artifacts kiln_artifacts;

typedef struct kiln_artifacts_options {
  size_t size;             /* sizeof(kiln_artifacts_options) */
  const char* coordinator; /* "tcp://127.0.0.1:7557" */
  const char* key_file;    /* what `kiln keys new` wrote; NULL: none */
  const char*
      signing_key; /* 64 hex digits; NULL: the key file's, else what the coordinator names */
} kiln_artifacts_options;

/* Contacts nobody. */
KILN_API kiln_code kiln_artifacts_open(const kiln_artifacts_options* options,
                                       kiln_artifacts** artifacts);
KILN_API void kiln_artifacts_close(kiln_artifacts* artifacts); /* and ends its leases */

typedef struct kiln_artifact_options {
  size_t size;        /* sizeof(kiln_artifact_options) */
  int32_t timeout_ms; /* of the call, but for wait_ms; 0: 2000 */
  int32_t wait_ms;    /* for whoever makes the value now; 0: none */
  int32_t lease_ms;   /* of the lease that a miss takes; 0: none */
} kiln_artifact_options;

typedef struct kiln_artifact {
  const void* bytes; /* NULL: a miss */
  size_t bytes_size;
  uint64_t
      lease; /* with a miss: the caller makes the value, and puts or releases it; 0: no lease */
  int32_t leased; /* with a miss: somebody else still makes it */
} kiln_artifact;

/* A miss is no error. `options`
 * may be NULL. */
KILN_API kiln_code kiln_artifact_get(kiln_artifacts* artifacts, const char* kind, const char* key,
                                     const kiln_artifact_options* options,
                                     kiln_artifact** artifact);
KILN_API void kiln_artifact_free(kiln_artifact* artifact);
/* Returns once the value, of at most 16 MiB, is stored; it takes the place of an earlier one, and
 * ends the lease. `timeout_ms` here and below: 0: 2000. */
KILN_API kiln_code kiln_artifact_put(kiln_artifacts* artifacts, const char* kind, const char* key,
                                     const void* bytes, size_t bytes_size, int32_t timeout_ms);
/* The value will not come: the next one who waits for it makes it. */
KILN_API kiln_code kiln_artifact_release(kiln_artifacts* artifacts, uint64_t lease,
                                         int32_t timeout_ms);

/* ---- Candidates */

/* A kernel of the caller's own, offered as a candidate for what a graph computes: where it is tuned with
 * MAX_AUTOTUNE for this target, by anybody, the kernel is compared with the reference and timed beside
 * Kiln's own, and is served if it is right and the fastest. The graph must be one kernel of Kiln's, of
 * constant sizes. Either `source` or `binary` is given. */
typedef struct kiln_candidate {
  size_t size;        /* sizeof(kiln_candidate) */
  const char* name;   /* a word of C: what kiln explain calls it */
  const char* target; /* "cpu": this machine's; a GPU in full: "cuda:sm_90a"; NULL: "cpu" */
  /* What the kernel takes, in order: 0 and up are the graph's inputs, -1 and down its outputs. */
  const int32_t* arguments;
  int32_t arguments_size;
  int32_t threads; /* of a block, on a GPU; 0: 256, of a source */
  /* Source as docs/custom_call.md has it: on the CPU
   *   static void FUNCTION(ARGUMENTS, int64_t begin, int64_t end)
   * and on a GPU KILN_INLINE void FUNCTION(ARGUMENTS). Compiled here. */
  const char* source;
  const char* function; /* the source's function, or the binary's entry */
  int64_t items;        /* what the source's grid is divided into; 0: the first output's elements */
  int64_t block;        /* of those, in one block; 0: 1024 */
  /* A cubin, for a grid of one axis; pointers alone are its parameters. */
  const void* binary;
  size_t binary_size;
  int64_t blocks;
  int32_t cluster;       /* 0: 1 */
  int32_t null_pointers; /* parameters behind the arguments, for scratch memory it does not use */
  /* The kernel may begin before the one in front of it on the stream has ended. All its threads wait for that
   * one (griddepcontrol.wait) before they touch memory and before any lets the next kernel begin. */
  int32_t dependent_launch;
  int64_t shared_bytes; /* dynamic shared memory of a block */
  const char* compiler; /* of a source for the CPU; NULL: the first of g++, c++, clang++ */
  const char* libnvrtc; /* of one for a GPU; NULL: the usual places */
} kiln_candidate;

/* Offers the kernel: takes the role publish. `graph`: bytes as kiln_compile() takes them. `schedule`
 * hears how `kiln explain` and the tuning log name it, cut to `schedule_size` bytes with the zero; may
 * be NULL. KILN_INVALID_ARGUMENT: the graph is several kernels, the arguments are not its, or the source
 * does not compile: the message says which. */
KILN_API kiln_code kiln_candidate_put(kiln_artifacts* artifacts, const void* graph,
                                      size_t graph_size, const kiln_candidate* candidate,
                                      char* schedule, size_t schedule_size, int32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif /* KILN_H */
