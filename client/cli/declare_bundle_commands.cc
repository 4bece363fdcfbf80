#include "client/cli/declare_commands.h"

namespace kiln::cli {

void declare_bundle_commands(CLI::App& app, Options& options) {
  auto* bundle = app.add_subcommand(
      "bundle",
      "Some programs of a service, with their kernels, as one file that the service's signature\n"
      "vouches for: for machines without a network, container images, CI\n"
      "  kiln bundle model.pt2 --mode max-autotune -o model.kiln --coordinator tcp://kiln:7557\n"
      "  kiln bundle programs.txt -o model.kiln       a line each: FILE [TARGET [MODE]]\n"
      "  kiln bundle kiln.lock -o model.kiln          what `kiln lock` named, as it was\n"
      "Tunes nothing: exit 4 when a program is not in the cache");
  bundle->add_option("FILE", options.files, "Programs, lists of programs, lock files")->required();
  bundle->add_option("-o,--out", options.out, "The file to write")->required();
  add_target(bundle, options);
  add_coordinator(bundle, options);
  bundle->add_option("--deadline", options.deadline_s, "Seconds to wait for each answer")
      ->capture_default_str();
  bundle->add_flag("--quiet", options.quiet, "No notes on stderr, only errors");
  add_json(bundle, options);

  auto* load = app.add_subcommand(
      "load",
      "Check a bundle, signatures and digests, and say what is in it; with --cache-dir keep it\n"
      "there, where every client of this machine that has the directory finds its programs, and "
      "needs no service\n"
      "  kiln load model.kiln --signer ed25519.pub\n"
      "  kiln load model.kiln --signer ed25519.pub --cache-dir /var/cache/kiln\n"
      "  kiln run model.pt2 --program model.kiln --signer ed25519.pub    runs straight from it");
  load->add_option("FILE", options.files, "What `kiln bundle` wrote")->required()->expected(1);
  load->add_option("--cache-dir", options.cache_dir,
                   "Keep it in this client's directory [KILN_CACHE_DIR]");
  add_signer(load, options);
  load->add_option("--key", options.key, "Your key, which says whose signature is good [KILN_KEY]");
  add_json(load, options);

  auto* lock = app.add_subcommand(
      "lock",
      "Print which program each file has now, for `kiln compile --locked`; tunes what is not in "
      "the cache\n"
      "  kiln lock models/*.pt2 --mode max-autotune > kiln.lock\n"
      "  kiln compile --locked models/*.pt2           next month: the same, or exit 1 and what "
      "changed");
  lock->add_option("FILE", options.files, "Programs")->required();
  add_target(lock, options);
  add_coordinator(lock, options);
  lock->add_option("--deadline", options.deadline_s, "Seconds to wait for each answer")
      ->capture_default_str();
  lock->add_flag("--quiet", options.quiet, "No progress and no notes on stderr, only errors");
  add_json(lock, options);

  runs(bundle, options, bundle_command);
  runs(load, options, load_command);
  runs(lock, options, lock_command);
}

}  // namespace kiln::cli
