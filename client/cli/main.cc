// `kiln`: the program for people and CI. Parses the command line and the environment once; each
// command is a function in its own file.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"

namespace {

using kiln::cli::Options;

constexpr char kDescription[] =
    "Kiln compiles and tunes tensor programs once for a whole fleet.\n\n"
    "  kiln up                                        a service on this machine, in the "
    "foreground\n"
    "  kiln compile model.pt2 --mode max-autotune     tune it, or fetch what was tuned before\n"
    "  kiln run model.pt2 --expect expected.safetensors   run it and check the answer\n\n"
    "FILE is what torch.export.save wrote (.pt2), or Kiln's text form.";

constexpr char kFooter[] =
    "Environment: KILN_COORDINATOR stands for --coordinator, KILN_KEY for --key,\n"
    "KILN_CACHE_DIR for --cache-dir, KILN_CACHE_SIZE for --cache-size;\n"
    "KILN_CXX names the host compiler of the local fallback (default: g++), KILN_LIBNVRTC its\n"
    "NVRTC, KILN_LIBCUDA the NVIDIA driver (default: the system's).\n"
    "Exit codes: 0 done; 1 ran, and the answer is no; 2 usage or bad input; 3 service unreachable "
    "and\n"
    "no fallback allowed; 4 miss under --check; 5 overloaded or deadline; 6 unsupported operation.";

constexpr char kKeys[] =
    "Who may speak to a coordinator from other machines. Three commands set it up:\n\n"
    "  kiln keys new ci --role submit --data-dir /var/lib/kiln    writes ci.key, for the machine "
    "of "
    "ci\n"
    "  kiln-coordinator --data-dir /var/lib/kiln --listen tcp://0.0.0.0:7557\n"
    "  KILN_KEY=ci.key kiln compile model.pt2 --coordinator tcp://HOST:7557    there\n\n"
    "Workers have keys too: `kiln keys new gpu1 --role worker`, kiln-worker --key gpu1.key. "
    "Roles:\n"
    "read (look-ups, binaries, statistics), submit (and start work), worker (report "
    "measurements),\n"
    "admin (everything). A running coordinator sees changes within a second.";

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// CPU time of this process so far, in ms; called first in main: the time of loading the program.
double cpu_ms() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
}

void add_json(CLI::App* command, Options& options) {
  command->add_flag("--json", options.json, "One JSON object a file on stdout");
}

void add_coordinator(CLI::App* command, Options& options) {
  command->add_option("--coordinator", options.coordinator,
                      "The service, e.g. tcp://127.0.0.1:7557 [KILN_COORDINATOR]");
  command->add_option("--key", options.key,
                      "Your key, for a service on another machine: what `kiln keys new` wrote "
                      "[KILN_KEY]");
}

void add_signer(CLI::App* command, Options& options) {
  command->add_option("--signer", options.signer,
                      "Whose signature is good: the coordinator's public signing key in hex, or "
                      "its DATA_DIR/signing/ed25519.pub (default: what --key says)");
}

void add_libraries(CLI::App* command, Options& options, const char* without) {
  command->add_flag("--no-libraries", options.no_libraries, without);
  command->add_option("--libcublaslt", options.libcublaslt,
                      "Where cuBLASLt is: its file, or the folder of a CUDA toolkit or Python "
                      "environment [KILN_LIBCUBLASLT] (default: VIRTUAL_ENV's, CONDA_PREFIX's, "
                      "CUDA_HOME's, the usual places)");
}

void add_compile_options(CLI::App* command, Options& options) {
  command
      ->add_option("--target", options.target,
                   "cpu, cpu:x86-64-v3, cpu:x86-64-v4; cuda: the GPU here; cuda:sm_90a, cuda:sm_80")
      ->capture_default_str();
  command
      ->add_option("--mode", options.mode,
                   "default: the best guess, untimed; max-autotune: search and measure")
      ->capture_default_str();
  add_coordinator(command, options);
  command->add_option("--cache-dir", options.cache_dir,
                      "Keep programs on this machine too, in this directory [KILN_CACHE_DIR]");
  command
      ->add_option("--cache-size", options.cache_bytes,
                   "What that directory may hold, as 500MiB or 20GiB (default: 10GiB): what was "
                   "not used for the longest goes; 0: no bound")
      ->envname("KILN_CACHE_SIZE")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--hint", options.hints,
                   "Sizes to tune at, of a program whose sizes vary: s0=1,32,512, or x.0=1,32 "
                   "for axis 0 of input x. One program for each, side by side")
      ->type_name("NAME=SIZES");
  command->add_flag("--no-fallback", options.no_fallback,
                    "Fail with 3 instead of compiling here when the service is away");
  command->add_option("--deadline", options.deadline_s, "Seconds to wait for the answer")
      ->capture_default_str();
  command->add_option("--threads", options.threads,
                      "Threads of a launch; 0: every core we may use");
  // For tests and unusual installations, so not in the help.
  command->add_option("--libcuda", options.libcuda)->group("");
  command->add_option("--libnvrtc", options.libnvrtc)->group("");
  add_libraries(command, options,
                "Load Kiln's own kernels, also where a program would call a library (cuBLASLt)");
  add_json(command, options);
}

void add_data_dir(CLI::App* command, Options& options) {
  command->add_option("--data-dir", options.data_dir, "The store's directory")
      ->capture_default_str();
}

CLI::App* add_cache(CLI::App& app, Options& options) {
  auto* cache = app.add_subcommand(
      "cache",
      "What a coordinator's store holds, whether it is sound, and making room in it:\n"
      "  kiln cache ls --sort size --limit 20\n"
      "  kiln cache verify\n"
      "  kiln cache gc --max-size 10GiB --coordinator tcp://127.0.0.1:7557\n"
      "ls and verify read the directory, also while a coordinator serves it. gc, pin and unpin go\n"
      "through --coordinator or KILN_COORDINATOR when one serves it, and open the directory when\n"
      "none does or --data-dir names it.");
  cache->require_subcommand(1);

  auto* ls = cache->add_subcommand("ls", "Programs and kernels: size, last use, pinned or needed");
  ls->add_option("--sort", options.sort, "use: latest first; size: largest first; key")
      ->check(CLI::IsMember({"use", "size", "key"}))
      ->capture_default_str();
  ls->add_option("--limit", options.limit, "How many to show; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();

  auto* verify = cache->add_subcommand("verify",
                                       "Read everything back and check it; exit 1 when something "
                                       "is bad. Of a client's --cache-dir,\n"
                                       "given as --data-dir, signatures too: its own, and with "
                                       "--signer or --key the coordinator's.\n"
                                       "A coordinator's store has none: it signs what it answers");
  add_signer(verify, options);
  verify->add_option("--key", options.key,
                     "Your key, which says whose signature is good [KILN_KEY]");
  verify->add_flag("--repair", options.repair,
                   "Drop what is bad (of a store that nobody serves): it is tuned again when "
                   "asked for");

  auto* gc = cache->add_subcommand(
      "gc",
      "Give up what was not used for the longest, and sweep up orphans; pinned programs\n"
      "stay; exit 1 when they keep it above the size");
  gc->add_option("--max-size", options.max_size, "What may stay, as 500MiB or 20GiB")
      ->transform(CLI::AsSizeValue(false));
  auto* pin = cache->add_subcommand("pin", "Never give up this program, nor what it needs");
  auto* unpin = cache->add_subcommand("unpin", "The end of a pin");
  for (auto* command : {pin, unpin})
    command->add_option("KEY", options.program_key, "The program's key: 64 hex digits")->required();
  for (auto* command : {gc, pin, unpin}) add_coordinator(command, options);
  for (auto* command : {ls, verify, gc, pin, unpin}) {
    add_data_dir(command, options);
    add_json(command, options);
  }
  for (auto* command : {gc, pin, unpin})
    command->get_option("--data-dir")->excludes(command->get_option("--coordinator"));
  return cache;
}

int cache_command(const CLI::App& cache, Options& options) {
  const auto* command = cache.get_subcommands().front();
  const std::string name = command->get_name();
  if (name == "ls") return kiln::cli::cache_ls_command(options);
  if (name == "verify") return kiln::cli::cache_verify_command(options);
  // A directory that is named is meant, and not the service of the environment.
  if (command->count("--data-dir") > 0) options.coordinator.clear();
  if (name != "gc") return kiln::cli::cache_pin_command(options, name == "pin");
  options.has_max_size = command->count("--max-size") > 0;
  return kiln::cli::cache_gc_command(options);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.exec_ms = cpu_ms();
  options.started = std::chrono::steady_clock::now();
  options.coordinator = from_environment("KILN_COORDINATOR");
  options.key = from_environment("KILN_KEY");
  options.cache_dir = from_environment("KILN_CACHE_DIR");
  options.compiler = from_environment("KILN_CXX");
  options.libcuda = from_environment("KILN_LIBCUDA");
  options.libnvrtc = from_environment("KILN_LIBNVRTC");
  if (options.libnvrtc.empty()) options.libnvrtc = from_environment("CUDA_HOME");
  for (const char* name : {"KILN_LIBCUBLASLT", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME"})
    if (options.libcublaslt.empty()) options.libcublaslt = from_environment(name);
  const std::string home = from_environment("HOME");
  const std::string xdg = from_environment("XDG_DATA_HOME");
  options.data_dir = (xdg.empty() ? (home.empty() ? "." : home + "/.local/share") : xdg) + "/kiln";

  CLI::App app{kDescription, "kiln"};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "kiln " KILN_VERSION);

  auto* compile =
      app.add_subcommand("compile", "Get the program of each file: from the cache, or tuned");
  compile->add_option("FILE", options.files, "Programs")->required();
  add_compile_options(compile, options);
  compile->add_flag("--check", options.check, "Only look: exit 4 when it is not in the cache");
  compile->add_option("--out", options.out,
                      "Write the program of one FILE to this directory: manifest.json, the order "
                      "of its inputs, and each kernel as <blob digest>.so, or .cubin for GPUs");

  auto* warm = app.add_subcommand(
      "warm",
      "Have a service tune each file before anybody needs it, after those who wait:\n"
      "  kiln warm model.pt2 --mode max-autotune --coordinator tcp://kiln:7557\n"
      "  kiln warm model.pt2 --mode max-autotune --detach     for CI: ends once it is queued on "
      "disk\n"
      "  kiln warm --status                                   what is queued, runs, or has failed");
  warm->add_option("FILE", options.files, "Programs");
  add_compile_options(warm, options);
  warm->add_flag("--detach", options.detach,
                 "Do not wait: end once the service has the program in its queue, which survives "
                 "its restarts; exit 3 when there is no service or no worker for the target");
  warm->add_flag("--status", options.warm_status,
                 "What the service tunes without a client; exit 1 when something has failed");
  warm->add_flag("--forget-failed", options.forget_failed,
                 "Have the service forget what has failed, once you have seen why: --status is 0 "
                 "again (an admin's request)");

  auto* run = app.add_subcommand("run", "Get the program of a file and run it");
  run->add_option("FILE", options.files, "Program")->required()->expected(1);
  run->add_option("--inputs", options.inputs,
                  "safetensors with in0, in1, ...: the user inputs in order");
  run->add_option(
      "--expect", options.expect,
      "safetensors with out0, out1, ... to compare with; gives the inputs too when it has "
      "them and --inputs is not given");
  run->add_option("--rtol", options.rtol, "Relative tolerance (default: by dtype)");
  run->add_option("--atol", options.atol, "Absolute tolerance (default: by dtype and magnitude)");
  run->add_option("--seed", options.seed, "Seed of the program's random numbers (default: 0)");
  run->add_option("--runs", options.runs, "Timed runs (default: what fits a fifth of a second)");
  run->add_option("--program", options.exported,
                  "Run what `kiln compile FILE --out DIR` wrote to this directory, and ask nobody: "
                  "signed by --signer, and not a bit altered, or nothing is loaded");
  add_signer(run, options);
  run->add_flag("--reduce-overhead", options.reduce_overhead,
                "On a GPU: capture the launches into a CUDA graph and replay it");
  add_compile_options(run, options);

  auto* digest = app.add_subcommand("digest", "Print the graph digest of each file");
  digest->add_option("FILE", options.files, "Programs")->required();
  add_json(digest, options);

  auto* explain = app.add_subcommand(
      "explain",
      "What Kiln makes of a file: its kernels in order, each with the operators, source lines and\n"
      "modules it came from, what keeps it apart from its neighbours, the bytes it moves and the\n"
      "floor these imply, its schedule, and its time when a cache knows it. Compiles nothing.");
  explain->add_option("FILE", options.files, "Program")->required()->expected(1);
  explain->add_option("--graph", options.graph_pass,
                      "Print the graph after this pass instead: read, expand_half, simplify, "
                      "fold_constants, sink_views, simplify_again, fold_constants_again, "
                      "sink_views_again, canonicalise, unroll_windows, "
                      "multiply_outer_products, split_reductions, sink_gathers, sink_broadcasts, "
                      "share_reshapes, arrange_products, lift_attention_casts");
  auto* source =
      explain->add_option("--source", options.source_launch,
                          "Print the generated code instead: of launch N, or of every kernel");
  source->expected(0, 1)->type_name("[N]")->check(CLI::Range(0, 1'000'000));
  explain->add_flag("--candidates", options.candidates,
                    "Print the schedules that a search would try for each kernel, best guess "
                    "first, with the template that makes each and its version");
  explain->add_flag("--why-miss", options.why_miss,
                    "Print what the program's key is made of, against the nearest program in "
                    "--cache-dir or at --coordinator, and which kernels would be tuned");
  add_compile_options(explain, options);

  auto* diff = app.add_subcommand(
      "diff", "What differs between the computations of two files; exit 1 when they do");
  diff->add_option("FILE", options.files, "Two programs")->required()->expected(2);
  add_json(diff, options);

  auto* stats = app.add_subcommand(
      "stats", "What a service did and has; on a terminal every second, until Ctrl-C");
  stats->add_flag("--watch", options.watch,
                  "Every second wherever stdout goes: a line of rates, or with --json an object");
  stats->add_flag("--once", options.once, "Once, also on a terminal");
  add_coordinator(stats, options);
  add_json(stats, options);

  auto* drain = app.add_subcommand(
      "drain",
      "Tell a worker to finish what it has and to exit; exit 2 when there is none so named");
  drain->add_option("WORKER", options.worker, "Its name, as `kiln stats` shows it")->required();
  add_coordinator(drain, options);
  add_json(drain, options);

  auto* cache = add_cache(app, options);

  auto* keys = app.add_subcommand("keys", kKeys);
  keys->require_subcommand(1);
  auto* keys_new = keys->add_subcommand("new", "Make a key, let it in, and write it to NAME.key");
  auto* keys_list = keys->add_subcommand("list", "Who may come in, and as what");
  auto* keys_revoke = keys->add_subcommand("revoke", "End a key, and the sessions it has");
  auto* keys_show = keys->add_subcommand("show", "The coordinator's own public key");
  for (auto* command : {keys_new, keys_revoke})
    command->add_option("NAME", options.files, "Whose key: letters, digits and . _ @ -")
        ->required()
        ->expected(1);
  for (auto* command : {keys_new, keys_list, keys_revoke, keys_show}) {
    command->add_option("--data-dir", options.data_dir, "The coordinator's data directory")
        ->capture_default_str();
    command->add_option("--keys", options.keys_dir, "Its folder of keys (default: DATA_DIR/keys)");
    add_json(command, options);
  }
  keys_new
      ->add_option("--role", options.role,
                   "read: look-ups and binaries. submit: and start work. worker: measure, and "
                   "nothing else. admin: everything")
      ->check(CLI::IsMember({"read", "submit", "worker", "admin"}))
      ->capture_default_str();
  keys_new->add_option("--out", options.out, "Where to write the key (default: NAME.key here)");

  auto* up = app.add_subcommand("up",
                                "Run a coordinator and workers for this machine's CPU and GPUs; "
                                "prints `ready tcp://HOST:PORT`");
  up->add_option("--data-dir", options.data_dir, "Where the cache lives")->capture_default_str();
  up->add_option(
        "--listen", options.listen,
        "Endpoint; port 0 picks one. Beyond loopback it takes keys (`kiln keys`), and --key "
        "an admin's for the workers here")
      ->capture_default_str();
  up->add_option("--http", options.http,
                 "Where the coordinator serves /metrics, /healthz and /readyz: ADDRESS:PORT, or "
                 "none (default: 127.0.0.1:9557, unless that is taken)");
  up->add_option("--key", options.key)->group("");
  up->add_option("--device", options.devices,
                 "cpu, cuda:0, ...: what to run workers for (default: cpu and every GPU)");
  up->add_option("--workers", options.workers, "How many workers for the CPU")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  up->add_option("--threads", options.threads,
                 "Threads of a launch in a worker for the CPU; 0: every core");
  up->add_option("--libcuda", options.libcuda)->group("");
  up->add_option("--libnvrtc", options.libnvrtc)->group("");
  add_libraries(up, options, "Workers for GPUs try no candidates that call a library (cuBLASLt)");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kiln::cli::kBadInput;
  }
  if (compile->parsed()) return kiln::cli::compile_command(options);
  if (warm->parsed()) return kiln::cli::warm_command(options);
  if (run->parsed()) return kiln::cli::run_command(options);
  if (explain->parsed()) {
    options.source = source->count() > 0;
    return kiln::cli::explain_command(options);
  }
  if (diff->parsed()) return kiln::cli::diff_command(options);
  if (digest->parsed()) return kiln::cli::digest_command(options);
  if (cache->parsed()) return cache_command(*cache, options);
  if (drain->parsed()) return kiln::cli::drain_command(options);
  if (stats->parsed()) return kiln::cli::stats_command(options);
  if (keys_new->parsed()) return kiln::cli::keys_new_command(options);
  if (keys_list->parsed()) return kiln::cli::keys_list_command(options);
  if (keys_revoke->parsed()) return kiln::cli::keys_revoke_command(options);
  if (keys_show->parsed()) return kiln::cli::keys_show_command(options);
  return kiln::cli::up_command(options);
}
