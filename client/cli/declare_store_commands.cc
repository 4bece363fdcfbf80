#include "client/cli/declare_commands.h"

namespace kiln::cli {
namespace {

constexpr char kKeys[] =
    "Who may speak to a coordinator from other machines. Three commands set it up:\n\n"
    "  kiln keys new ci --role submit --data-dir /var/lib/kiln    writes ci.key, for the machine "
    "of "
    "ci\n"
    "  kiln-coordinator --data-dir /var/lib/kiln --listen tcp://0.0.0.0:7557\n"
    "  KILN_KEY=ci.key kiln compile model.pt2 --coordinator tcp://HOST:7557    there\n\n"
    "Workers have keys too: `kiln keys new gpu1 --role worker`, kiln-worker --key gpu1.key. "
    "Roles:\n"
    "read (look-ups, binaries, statistics), submit (and start work), publish (and artifacts that "
    "others\n"
    "unpickle), worker (report measurements), admin (everything). A running coordinator sees "
    "changes within a second.";

void add_data_dir(CLI::App* command, Options& options) {
  command->add_option("--data-dir", options.data_dir, "The store's directory")
      ->capture_default_str();
}

}  // namespace

void declare_cache_commands(CLI::App& app, Options& options) {
  auto* cache = app.add_subcommand(
      "cache",
      "What a coordinator's store holds, whether it is sound, and making room in it:\n"
      "  kiln cache ls --sort size --limit 20\n"
      "  kiln cache verify\n"
      "  kiln cache gc --max-size 10GiB --coordinator tcp://127.0.0.1:7557\n"
      "  kiln cache export s3://bucket/kiln --data-dir /var/lib/kiln\n"
      "ls and verify read the directory, also while a coordinator serves it. gc, pin and unpin go\n"
      "through --coordinator or KILN_COORDINATOR when one serves it, and open the directory when\n"
      "none does or --data-dir names it. forget asks a service.");
  cache->require_subcommand(1);

  auto* ls = cache->add_subcommand("ls", "Programs and kernels: size, last use, pinned or needed");
  ls->add_option("--sort", options.sort, "use: latest first; size: largest first; key")
      ->check(CLI::IsMember({"use", "size", "key"}))
      ->capture_default_str();
  ls->add_option("--kind", options.kind,
                 "Other compilers' artifacts instead, of the kinds that begin so: inductor");
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
  auto* forget = cache->add_subcommand("forget",
                                       "Take results back: programs, kernels and tuning records, "
                                       "everything made with them, and what\n"
                                       "clients keep of it (they learn it when they next hear from "
                                       "the service). Says what would go;\n"
                                       "--yes does it. An admin's request, to a service");
  forget->add_option("--program", options.program_key,
                     "A program, its kernels, and every program that contains one: 64 hex digits");
  forget->add_option("--kernel", options.kernel_key,
                     "A kernel, and every program that contains it: 64 hex digits");
  forget->add_option("--worker", options.worker,
                     "Whatever this worker reported, with the kernels it had a part in");
  forget->add_option("--since", options.since,
                     "Whatever was reported since: 2026-11-23T06:00:00 (UTC), or 90m, 12h, 7d ago; "
                     "with --worker, by that one");
  forget->add_flag("--yes", options.yes, "Do it");
  add_coordinator(forget, options);
  add_json(forget, options);
  auto* to = cache->add_subcommand(
      "export",
      "Write the store out, also while coordinators serve it: to a folder, or to\n"
      "s3://BUCKET/PREFIX with the credentials that AWS's tools use. What an earlier export left "
      "there is\n"
      "not written again. The index and a sample of the binaries are read back\n"
      "  kiln cache export s3://backups/kiln --data-dir /var/lib/kiln\n"
      "  kiln cache export /backups/kiln --store postgresql://kiln@db/kiln --blobs s3://kiln/prod");
  to->add_option("PLACE", options.files, "Where to")->required()->expected(1);
  auto* from = cache->add_subcommand(
      "import",
      "Read an export in, or another data directory (also while a coordinator serves that one).\n"
      "A data directory without a store gets everything as it was; to a store, which nobody may be "
      "serving,\n"
      "what it lacks is added. Then all of it is checked: exit 1 when something is bad. Whoever "
      "can "
      "write\n"
      "PLACE decides what clients run: import only your own\n"
      "  kiln cache import s3://backups/kiln --data-dir /var/lib/kiln2");
  from->add_option("PLACE", options.files, "Where from")->required()->expected(1);
  for (auto* command : {to, from}) {
    auto* store = command->add_option(
        "--store", options.store,
        "The store of several machines, instead of a data directory: postgresql://..., as "
        "kiln-coordinator takes it");
    auto* blobs = command->add_option("--blobs", options.blobs, "Where that store's binaries are");
    store->needs(blobs);
    blobs->needs(store);
    command->add_option("--s3-endpoint", options.s3_endpoint,
                        "An S3 service that is not AWS: http://HOST:PORT [AWS_ENDPOINT_URL]");
    add_data_dir(command, options);
    add_json(command, options);
    store->excludes(command->get_option("--data-dir"));
  }
  runs(to, options, cache_export_command);
  runs(from, options, cache_import_command);
  for (auto* command : {gc, pin, unpin}) add_coordinator(command, options);
  for (auto* command : {ls, verify, gc, pin, unpin}) {
    add_data_dir(command, options);
    add_json(command, options);
  }
  for (auto* command : {gc, pin, unpin})
    command->get_option("--data-dir")->excludes(command->get_option("--coordinator"));

  runs(ls, options, cache_ls_command);
  runs(verify, options, cache_verify_command);
  runs(forget, options, cache_forget_command);
  // A directory that is named is meant, and not the service of the environment.
  const auto runs_on_store = [&options](CLI::App* command, int (*run)(const Options&)) {
    command->final_callback([&options, command, run] {
      if (command->count("--data-dir") > 0) options.coordinator.clear();
      if (command->get_name() == "gc") options.has_max_size = command->count("--max-size") > 0;
      options.run = run;
    });
  };
  runs_on_store(gc, cache_gc_command);
  runs_on_store(pin, cache_pin_command);
  runs_on_store(unpin, cache_unpin_command);
}

void declare_tune_log_command(CLI::App& app, Options& options) {
  auto* log = app.add_subcommand(
      "tune-log",
      "Every measurement that was taken, one JSON object a line, the oldest first: for tables, "
      "plots "
      "and\n"
      "models of cost. Columns are flat, have one type each, and are only ever added:\n"
      "  kiln tune-log --columns                                         what they mean\n"
      "  kiln tune-log --data-dir /var/lib/kiln --csv > tuning.csv        also while it is served\n"
      "  kiln tune-log --coordinator tcp://HOST:7557 --since 7d           an admin's request\n"
      "  kiln tune-log --template cpu.matmul | jq -s 'map(select(.won)) | length'\n"
      "Exit 0 also where nothing fits (stderr says so); 2: no store, bad filter; 3: no service.");
  log->add_option("--program", options.program_key, "Of this program's kernels: 64 hex digits");
  log->add_option("--kernel", options.kernel_key, "Of this kernel: 64 hex digits");
  log->add_option("--worker", options.worker, "Taken by this worker");
  log->add_option("--template", options.template_name, "Of this kernel template: cpu.matmul");
  log->add_option("--since", options.since,
                  "Taken since: 2026-11-23T06:00:00 (UTC), or 90m, 12h, 7d ago");
  log->add_flag("--csv", options.csv, "CSV with a line of names (RFC 4180) instead of JSON lines");
  log->add_flag("--columns", options.columns, "Print each column's name, type and meaning");
  add_data_dir(log, options);
  add_coordinator(log, options);
  log->get_option("--data-dir")->excludes(log->get_option("--coordinator"));
  // A directory that is named is meant, and not the service of the environment.
  log->final_callback([&options, log] {
    if (log->count("--data-dir") > 0) options.coordinator.clear();
    options.run = tune_log_command;
  });
}

void declare_audit_command(CLI::App& app, Options& options) {
  auto* acts = app.add_subcommand(
      "audit",
      "What operators asked of the coordinators of a store, and what came of it, the latest "
      "first:\n"
      "pins, drains, cancels, what was forgotten, keys that came and went, who led, imports.\n"
      "  kiln audit --data-dir /var/lib/kiln                             also while it is served\n"
      "  kiln audit --store postgresql://HOST/kiln --since 7d --json     one JSON object a line\n"
      "The web page's /audit shows the last thousand. Exit 0 also where there is nothing; 2: no "
      "store;\n"
      "3: the database is away.");
  acts->add_option("--since", options.since,
                   "Since then: 2026-11-23T06:00:00 (UTC), or 90m, 12h, 7d ago");
  acts->add_option("--limit", options.limit, "How many to show; 0: all")->capture_default_str();
  add_json(acts, options);
  add_data_dir(acts, options);
  acts->add_option("--store", options.store,
                   "The database of several coordinators: postgresql://...")
      ->excludes(acts->get_option("--data-dir"));
  runs(acts, options, audit_command);
}

void declare_keys_commands(CLI::App& app, Options& options) {
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
  auto* keys_rotate =
      keys->add_subcommand("rotate", "Change the key that programs are signed with, in --data-dir");
  for (auto* command : {keys_new, keys_list, keys_revoke, keys_show, keys_rotate}) {
    command->add_option("--data-dir", options.data_dir, "The coordinator's data directory")
        ->capture_default_str();
    command->add_option("--keys", options.keys_dir, "Its folder of keys (default: DATA_DIR/keys)");
    add_json(command, options);
  }
  keys_new
      ->add_option(
          "--role", options.role,
          "read: look-ups and binaries. submit: and start work. publish: and artifacts that "
          "others unpickle (Inductor's). worker: measure, and nothing else. admin: "
          "everything")
      ->check(CLI::IsMember({"read", "submit", "publish", "worker", "admin"}))
      ->capture_default_str();
  keys_new
      ->add_option("--share", options.share,
                   "Who may fetch the programs that are tuned for this key: all, who have a key of "
                   "this coordinator; its team (--team); private: nobody else")
      ->check(CLI::IsMember({"private", "team", "all"}))
      ->capture_default_str();
  keys_new->add_option("--team", options.team,
                       "Its team: it sees what the team's keys share with it");
  keys_new
      ->add_option("--trust", options.trust,
                   "Of a worker. screens: it times no finals, and nothing is served on its word "
                   "alone; finals: as every worker; alone: nobody need confirm its winners")
      ->check(CLI::IsMember({"screens", "finals", "alone"}))
      ->capture_default_str();
  keys_revoke->add_flag("--keep-results", options.keep_results,
                        "Keep what the key reported, as of a machine that is retired; else the "
                        "coordinator takes it back (kiln cache forget)");
  keys_rotate
      ->add_option(
          "--days", options.overlap_days,
          "The old key vouches for the new one for so long: until then clients and workers "
          "with\nkey files of before go on. 0: not at all, for a key that somebody else may have")
      ->check(CLI::Range(0, 3650))
      ->capture_default_str();
  keys_new->add_option("--out", options.out, "Where to write the key (default: NAME.key here)");

  auto* page_token = app.add_subcommand(
      "page-token",
      "Print a token that a browser on another machine shows a coordinator's web page; made from "
      "the key\n"
      "file alone. It ends by itself, and with the key");
  page_token->add_option("--key", options.key, "Your key (default: KILN_KEY)");
  page_token
      ->add_option("--role", options.token_role,
                   "read: look. admin: and drain, pin, forget, cancel. submit, publish: to put "
                   "artifacts through the Redis port. Each takes such a key")
      ->check(CLI::IsMember({"read", "submit", "publish", "admin"}))
      ->capture_default_str();
  page_token->add_option("--hours", options.token_hours, "It ends after so many")
      ->check(CLI::Range(0.01, 24.0 * 30))
      ->capture_default_str();
  add_json(page_token, options);

  auto* init = app.add_subcommand("init",
                                  "A first cluster: makes its keys (admin, ci, replica, worker) "
                                  "and says which command runs on\n"
                                  "which machine. Keys that are there already stay");
  init->add_option("--data-dir", options.data_dir, "The coordinator's data directory")
      ->capture_default_str();
  init->add_option("--keys", options.keys_dir, "Its folder of keys (default: DATA_DIR/keys)");
  init->add_option("--out", options.out, "Where the keys to hand out go (default: kiln-keys here)");
  add_json(init, options);

  runs(init, options, init_command);
  runs(keys_new, options, keys_new_command);
  runs(keys_list, options, keys_list_command);
  runs(keys_revoke, options, keys_revoke_command);
  runs(keys_rotate, options, keys_rotate_command);
  runs(keys_show, options, keys_show_command);
  runs(page_token, options, page_token_command);
}

}  // namespace kiln::cli
