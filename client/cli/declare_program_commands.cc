#include "client/cli/declare_commands.h"

namespace kiln::cli {
namespace {

void add_compile_options(CLI::App* command, Options& options) {
  add_target(command, options);
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
      ->add_option("--max-age", options.max_age_s,
                   "Ask again for what came to that directory longer ago, as 12h or 7d, and run no "
                   "older copy: what was taken back since is then not run; 0: any age will do")
      ->envname("KILN_MAX_AGE")
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
          CLI::AsNumberWithUnit::CASE_INSENSITIVE));
  command
      ->add_flag("--blob-links", options.blob_links,
                 "Fetch binaries from the service's object store, where it hands out links to it, "
                 "instead of through the service [KILN_BLOB_LINKS]")
      ->envname("KILN_BLOB_LINKS");
  command
      ->add_option("--hint", options.hints,
                   "Sizes to tune at, of a program whose sizes vary: s0=1,32,512, or x.0=1,32 "
                   "for axis 0 of input x. One program for each, side by side")
      ->type_name("NAME=SIZES");
  command->add_flag("--strict", options.strict,
                    "Take no program that kernel templates of another version made: wait for its "
                    "successor, instead of being served while that is tuned");
  command->add_flag("--verify", options.verify,
                    "In default mode: wait until the service has compared the results of every "
                    "kernel, instead of taking the program as soon as it is compiled");
  command->add_flag("--no-fallback", options.no_fallback,
                    "Fail with 3 instead of compiling here when the service is away");
  command->add_option("--deadline", options.deadline_s, "Seconds to wait for the answer")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Threads of a launch; 0: every core we may use")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--otlp-endpoint", options.otlp_endpoint,
                   "Send a trace of this command to an OpenTelemetry collector, as "
                   "http://127.0.0.1:4318 [OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER; "
                   "TRACEPARENT is joined]")
      ->type_name("URL");
  // For tests and unusual installations, so not in the help.
  command->add_option("--libcuda", options.libcuda)->group("");
  command->add_option("--libnvrtc", options.libnvrtc)->group("");
  add_libraries(command, options,
                "Load Kiln's own kernels, also where a program would call a library (cuBLASLt)");
  command->add_flag("--quiet", options.quiet, "No progress and no notes on stderr, only errors");
  add_json(command, options);
}

// `others`: options that --now makes no sense with.
void add_now(CLI::App* command, Options& options, std::initializer_list<const char*> others) {
  auto* now = command->add_flag(
      "--now", options.now,
      "With --mode max-autotune: where the program is not tuned yet, take at once what the service "
      "has, a stale program or the default one (cache: tier0), and leave the tuning to the "
      "service");
  for (const char* other : others) now->excludes(command->get_option(other));
}

}  // namespace

void declare_program_commands(CLI::App& app, Options& options) {
  auto* compile =
      app.add_subcommand("compile", "Get the program of each file: from the cache, or tuned");
  compile->add_option("FILE", options.files, "Programs")->required();
  add_compile_options(compile, options);
  compile->add_flag("--check", options.check, "Only look: exit 4 when it is not in the cache");
  compile->add_option("--out", options.out,
                      "Write the program of one FILE to this directory: manifest.json, the order "
                      "of its inputs, and each kernel as <blob digest>.so, or .cubin for GPUs");

  auto* locked = compile->add_flag("--locked", options.locked,
                                   "Take only the programs that the lock file names, as they were "
                                   "(`kiln lock`), for their targets\n"
                                   "and modes; tune nothing. Exit 1 and what changed when one is "
                                   "another; 4 when the cache has it no more");
  compile->add_option("--lock", options.lock_file, "The lock file of --locked")
      ->capture_default_str()
      ->needs(locked);
  for (const char* other : {"--target", "--mode", "--hint", "--check"})
    locked->excludes(compile->get_option(other));

  add_now(compile, options, {"--check", "--out", "--locked"});

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

  warm->add_option("--cancel", options.cancel,
                   "Have the service forget this program, queued, running or failed: the "
                   "program_key of --status --json (an admin's request)");

  add_now(warm, options, {"--detach", "--status"});

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
  run->add_option(
      "--profile", options.profile,
      "Write when each launch ran to this file, as a timeline for ui.perfetto.dev or "
      "chrome://tracing, and print each kernel's share of the time and of the roofline");
  run->add_option("--program", options.exported,
                  "Run what `kiln compile FILE --out DIR` wrote to this directory, or a program of "
                  "this bundle (`kiln bundle`), and ask nobody: "
                  "signed by --signer, and not a bit altered, or nothing is loaded");
  add_signer(run, options);
  run->add_flag("--reduce-overhead", options.reduce_overhead,
                "On a GPU: capture the launches into a CUDA graph and replay it");
  add_compile_options(run, options);
  add_now(run, options, {"--program"});

  auto* digest = app.add_subcommand("digest", "Print the graph digest of each file");
  digest->add_option("FILE", options.files, "Programs")->required();
  add_json(digest, options);

  auto* explain = app.add_subcommand(
      "explain",
      "What Kiln makes of a file: its kernels in order, each with the operators, source lines and\n"
      "modules it came from, what keeps it apart from its neighbours, the bytes it moves and the\n"
      "floor these imply, its schedule, and its time when a cache knows it. Compiles nothing.");
  explain->add_option("FILE", options.files, "Program")->required()->expected(1);
  explain->add_option(
      "--graph", options.graph_pass,
      "Print the graph after this pass instead: read, expand_half, simplify, "
      "fold_constants, sink_views, simplify_again, fold_constants_again, "
      "sink_views_again, canonicalise, unroll_windows, "
      "multiply_vectors, pack_shared_heads, patch_convolutions, split_reductions, sink_gathers, "
      "sink_broadcasts, share_reshapes, round_products, share_parts, order_gathers, "
      "fold_column_arithmetic, arrange_products, lift_attention_casts");
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
  explain->add_option(
      "--html", options.html,
      "Write all of it to this file as one page, with each kernel's candidates and source: it "
      "needs nothing else, so it can be mailed");
  add_compile_options(explain, options);

  auto* diff = app.add_subcommand(
      "diff", "What differs between the computations of two files; exit 1 when they do");
  diff->add_option("FILE", options.files, "Two programs")->required()->expected(2);
  add_json(diff, options);

  runs(compile, options, compile_command);
  runs(warm, options, warm_command);
  runs(run, options, run_command);
  runs(digest, options, digest_command);
  runs(diff, options, diff_command);
  explain->final_callback([&options, source] {
    options.source = source->count() > 0;
    options.run = explain_command;
  });
}

}  // namespace kiln::cli
