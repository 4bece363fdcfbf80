#include "client/cli/declare_commands.h"

namespace kiln::cli {
namespace {

constexpr char kDescription[] =
    "Kiln compiles and tunes tensor programs once for a whole fleet.\n\n"
    "  kiln up                                        a service on this machine, in the "
    "foreground\n"
    "  kiln compile model.pt2 --mode max-autotune     tune it, or fetch what was tuned before\n"
    "  kiln run model.pt2 --expect expected.safetensors   run it and check the answer\n\n"
    "FILE is what torch.export.save wrote (.pt2), an ONNX model (.onnx), or Kiln's text form.";

constexpr char kFooter[] =
    "Environment: KILN_COORDINATOR stands for --coordinator, KILN_KEY for --key,\n"
    "KILN_CACHE_DIR for --cache-dir, KILN_CACHE_SIZE for --cache-size;\n"
    "KILN_CXX names the host compiler of the local fallback (default: g++), KILN_LIBNVRTC its\n"
    "NVRTC, KILN_LIBCUDA the NVIDIA driver (default: the system's).\n"
    "Exit codes: 0 done; 1 ran, and the answer is no; 2 usage or bad input; 3 service unreachable "
    "and\n"
    "no fallback allowed; 4 miss under --check; 5 overloaded or deadline; 6 unsupported operation.";

void declare_service_commands(CLI::App& app, Options& options) {
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
                 "Threads of a launch in a worker for the CPU; 0: every core")
      ->check(CLI::Range(0, 1024));
  up->add_option("--libcuda", options.libcuda)->group("");
  up->add_option("--libnvrtc", options.libnvrtc)->group("");
  add_libraries(up, options, "Workers for GPUs try no candidates that call a library (cuBLASLt)");

  auto* doctor = app.add_subcommand(
      "doctor",
      "Whether this machine has what Kiln needs: programs, compiler, GPU, sandbox, directories,\n"
      "key, service; each with the step that mends it. Exit 1 when something is bad");
  doctor->add_option("--data-dir", options.data_dir, "The store's directory")
      ->capture_default_str();
  doctor->add_option("--cache-dir", options.cache_dir, "The client's directory [KILN_CACHE_DIR]");
  doctor->add_option("--libcuda", options.libcuda)->group("");
  add_coordinator(doctor, options);
  add_json(doctor, options);

  runs(stats, options, stats_command);
  runs(drain, options, drain_command);
  runs(up, options, up_command);
  runs(doctor, options, doctor_command);
}

}  // namespace

void add_json(CLI::App* command, Options& options) {
  command->add_flag("--json", options.json, "JSON on stdout, one object a line");
}

void add_coordinator(CLI::App* command, Options& options) {
  command->add_option(
      "--coordinator", options.coordinator,
      "The service, e.g. tcp://127.0.0.1:7557; several coordinators of one store with "
      "commas between [KILN_COORDINATOR]");
  command->add_option("--key", options.key,
                      "Your key, for a service on another machine: what `kiln keys new` wrote "
                      "[KILN_KEY]");
}

void add_target(CLI::App* command, Options& options) {
  command
      ->add_option("--target", options.target,
                   "cpu, cpu:x86-64-v3, cpu:x86-64-v4; cuda: the GPU here; cuda:sm_90a, cuda:sm_80")
      ->capture_default_str();
  command
      ->add_option("--mode", options.mode,
                   "default: the best guess, not timed, and verified behind the answer; "
                   "max-autotune: search and measure")
      ->check(CLI::IsMember({"default", "max-autotune"}))
      ->capture_default_str();
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

void runs(CLI::App* command, Options& options, int (*run)(const Options&)) {
  command->final_callback([&options, run] { options.run = run; });
}

void declare_commands(CLI::App& app, Options& options) {
  app.description(kDescription);
  app.footer(kFooter);
  app.require_subcommand(1);
  declare_program_commands(app, options);
  declare_bundle_commands(app, options);
  declare_service_commands(app, options);
  declare_cache_commands(app, options);
  declare_tune_log_command(app, options);
  declare_audit_command(app, options);
  declare_keys_commands(app, options);
}

}  // namespace kiln::cli
