// Everything `kiln` was asked on its command line and through the environment, read once in main.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace kiln::cli {

struct Options {
  // When main began, and what the system took to get there, in CPU time.
  std::chrono::steady_clock::time_point started;
  double exec_ms = 0;

  int (*run)(const Options& options) = nullptr;  // the command asked for, as below
  bool json = false;
  bool quiet = false;  // no progress, no notes; errors are said

  // Which service, which cache, which code.
  std::string coordinator;    // --coordinator, else KILN_COORDINATOR; empty: none
  std::string key;            // --key, else KILN_KEY; empty: none
  std::string otlp_endpoint;  // --otlp-endpoint: of a collector; empty: the environment's
  std::string signer;     // --signer: a public signing key, or a file with one; empty: the key's
  std::string cache_dir;  // --cache-dir, else KILN_CACHE_DIR; empty: none
  std::string compiler;   // KILN_CXX
  std::string libcuda;    // --libcuda, else KILN_LIBCUDA; empty: libcuda.so.1
  std::string libnvrtc;   // --libnvrtc, else KILN_LIBNVRTC, else CUDA_HOME's; empty: searched
  // --libcublaslt, else KILN_LIBCUBLASLT, else the Python environment's or CUDA_HOME; empty: searched
  std::string libcublaslt;
  bool no_libraries = false;
  // --cache-size, else KILN_CACHE_SIZE: of cache_dir; 0: no bound.
  uint64_t cache_bytes = uint64_t{10} << 30;
  double max_age_s = 0;     // --max-age: of a program in cache_dir; 0: any
  bool blob_links = false;  // --blob-links: binaries from the service's object store
  std::string target = "cpu";
  std::string mode = "default";
  bool no_fallback = false;
  bool strict = false;  // no program of older templates
  bool verify = false;  // no program that is not verified yet
  bool now = false;     // tier 0, while the program is tuned
  bool check = false;
  double deadline_s = 600;
  int threads = 0;

  std::vector<std::string> hints;  // as hints.h reads them

  std::vector<std::string> files;

  // compile
  std::string out;      // directory; empty: none
  bool locked = false;  // only what lock_file names, as it was
  std::string lock_file = "kiln.lock";

  // bundle: `out` is its file

  // warm
  bool detach = false;
  bool warm_status = false;
  bool forget_failed = false;
  std::string cancel;    // --cancel: a program's key
  bool warm_up = false;  // compile_command: after those who wait, and not to be run here

  // run
  bool reduce_overhead = false;
  std::string exported;  // --program: a directory that compile --out wrote; empty: none
  std::string inputs, expect;
  double rtol = -1, atol = -1;  // negative: by dtype
  int64_t seed = 0;             // of a program's random numbers
  int runs = 0;                 // 0: as many as fit a fifth of a second
  std::string profile;          // run: where the timeline goes; empty: none is taken

  // explain
  std::string graph_pass;  // whose graph to print; empty: none
  bool source = false;     // print the generated code
  int source_launch = -1;  // of one launch; -1: of every kernel
  bool why_miss = false;
  bool candidates = false;
  std::string html;  // explain: where the page goes; empty: none is made

  // cache
  std::string sort = "use";  // "use", "size" or "key"
  int64_t limit = 50;        // 0: all
  std::string kind;          // ls: of artifacts; empty: programs and kernels
  uint64_t max_size = 0;
  bool has_max_size = false;
  bool repair = false;
  std::string store, blobs;  // import: postgresql://... and its binaries; empty: data_dir
  std::string s3_endpoint;   // of export and import; empty: as AWS's tools are told
  std::function<std::string(const char*)> variable;  // of the environment; "": not set
  std::string program_key;                           // 64 hex digits
  std::string kernel_key;                            // the same
  std::string since;                                 // forget: as people write a time
  bool yes = false;                                  // forget: do it

  // tune-log; and of `cache`: data_dir, limit, program_key, kernel_key, since, worker
  std::string template_name;
  bool csv = false;
  bool columns = false;  // only say what they mean

  // stats
  bool watch = false;  // every second
  bool once = false;   // also on a terminal

  // drain
  std::string worker;

  // keys: `files` has the name
  std::string keys_dir;  // --keys; empty: data_dir/keys
  std::string role = "submit";
  std::string share = "all", team, trust = "finals";  // of a new key
  bool keep_results = false;                          // revoke
  int overlap_days = 30;                              // rotate

  // page-token
  std::string token_role = "read";
  double token_hours = 12;

  // up, cache
  std::string data_dir;
  std::string listen = "tcp://127.0.0.1:7557";
  int workers = 1;                   // for the CPU
  std::string http;                  // of the coordinator; empty: its own default
  std::vector<std::string> devices;  // "cpu", "cuda:1"; empty: the CPU and every GPU there is
};

// Each returns an exit code.
int compile_command(const Options& options);
int compile_locked(const Options& options);  // compile_command's part for --locked
int lock_command(const Options& options);
int bundle_command(const Options& options);
int load_command(const Options& options);
int warm_command(const Options& options);
int run_command(const Options& options);
int digest_command(const Options& options);
int explain_command(const Options& options);
int diff_command(const Options& options);
int stats_command(const Options& options);
int cache_ls_command(const Options& options);
int cache_ls_artifacts(const Options& options);  // the same with --kind
int cache_verify_command(const Options& options);
int cache_gc_command(const Options& options);
int cache_pin_command(const Options& options);
int cache_unpin_command(const Options& options);
int cache_forget_command(const Options& options);
int cache_export_command(const Options& options);
int cache_import_command(const Options& options);
int tune_log_command(const Options& options);
int audit_command(const Options& options);
int drain_command(const Options& options);
int keys_new_command(const Options& options);
int keys_list_command(const Options& options);
int keys_revoke_command(const Options& options);
int keys_rotate_command(const Options& options);
int keys_show_command(const Options& options);
int page_token_command(const Options& options);
int up_command(const Options& options);
int init_command(const Options& options);
int doctor_command(const Options& options);

}  // namespace kiln::cli
