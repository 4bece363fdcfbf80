@0x9b72a1400ae9b649;

# Kiln's protocol: what client, coordinator and worker say to each other.
#
# One frame is one Envelope: a Cap'n Proto message, unpacked, with its segment table, at most 132 KiB;
# a larger message, of at most 32 MiB, travels as several frames that each hold a Part of it.
# A frame travels as the only part of a ZeroMQ message between a DEALER (client or worker) and the
# coordinator's ROUTER. An empty frame is a probe of the connection and carries no meaning.
#
# A connection opens with Hello; the coordinator answers Welcome, or Refusal when it does not speak
# that protocol version. Anything else before Hello is refused. A frame that does not decode, or holds
# a value out of its range, costs its sender the connection.
#
# Rules for change. Fields and union members are only ever added, at the end, with a default that
# means "as before"; numbers of enums equal those of the C++ enums and are never renumbered. A change
# that an old peer would misread raises the protocol version (messages.h).
#
# Digests are 32 bytes of BLAKE2b. Times are what their unit says; counts are never negative, and
# samples and times are finite.
# Names (of workers, software, and the words of a target) have at most 256 bytes.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kiln::wire");

struct Envelope {
  union {
    unset @0 :Void;
    hello @1 :Hello;
    welcome @2 :Welcome;
    refusal @3 :Error;
    compileRequest @4 :CompileRequest;
    needGraph @5 :UInt64;         # the request whose graph the coordinator wants
    progress @6 :Progress;
    compileReply @7 :CompileReply;
    blobRequest @8 :BlobRequest;
    blobReply @9 :BlobReply;
    cancel @10 :UInt64;           # the request nobody waits for any more
    statsRequest @11 :UInt64;
    statsReply @12 :StatsReply;
    workerReport @13 :WorkerReport;
    workerOrders @14 :WorkerOrders;
    adminRequest @15 :AdminRequest;
    adminReply @16 :AdminReply;
    blobCredit @17 :BlobCredit;
    part @18 :Part;
    revocationsRequest @19 :UInt64;
    revocationsReply @20 :RevocationsReply;
    artifactGet @21 :ArtifactGet;
    artifactReply @22 :ArtifactReply;
    artifactPut @23 :ArtifactPut;
    artifactRelease @24 :UInt64;  # the lease that its holder gives up without a value
  }
}

# ---- Values that several messages share ----

enum Role { unset @0; client @1; worker @2; }
enum Backend { unset @0; cpu @1; cuda @2; }
enum Mode { unset @0; default @1; maxAutotune @2; }
enum Family {
  unset @0; pointwise @1; rowReduction @2; columnReduction @3; matmul @4; scan @5; sort @6;
  scatter @7; convolution @8; attention @9; custom @10; attentionGradient @11; products @12;
  rowUpdate @13;
}
enum CacheOutcome { unset @0; tuned @1; joined @2; hit @3; local @4; queued @5; }
enum Priority { interactive @0; warmUp @1; }
enum JobKind { unset @0; compile @1; screen @2; final @3; build @4; }

enum Verdict {
  unset @0;
  ok @1;
  compileFailed @2;
  wrongResult @3;
  outOfBounds @4;
  timedOut @5;
  runnerDied @6;
  deviceLost @7;
}

enum Code {
  unset @0;
  invalidArgument @1;
  unsupported @2;
  notFound @3;
  overloaded @4;
  unavailable @5;
  deadlineExceeded @6;
  corruption @7;
  permissionDenied @8;
  internal @9;
}

struct Error {
  code @0 :Code;
  message @1 :Text;
  retryAfterMs @2 :UInt64;        # for overloaded
}

struct Target {
  backend @0 :Backend;
  isa @1 :Text;
  deviceModel @2 :Text;           # empty: any
  units @3 :UInt32;               # 0: any
  toolkit @4 :Text;               # empty: any
}

struct Schedule {
  templateName @0 :Text;          # "cuda.row_reduction"; version 2 had a family here
  decisions @1 :List(Decision);   # in order

  struct Decision {
    name @0 :Text;
    value @1 :Int64;
  }
}

struct MeasurementPolicy {
  screenRuns @0 :UInt32;
  screenDrop @1 :Float64;
  raceRuns @2 :UInt32;
  raceDrop @3 :Float64;
  finalists @4 :UInt32;
  finalRuns @5 :UInt32;
  tie @6 :Float64;
  launchTimeoutMs @7 :UInt64;
}

# ---- Opening a connection ----

struct Hello {
  protocol @0 :UInt32;
  role @1 :Role;
  software @2 :Text;              # for logs
  token @3 :Data;                 # 16 bytes: Welcome.session of the session this one goes on from
  templates @4 :List(TemplateVersion);  # a worker's kernel templates, at most 1024
}

struct TemplateVersion {
  name @0 :Text;                  # "cuda.row_reduction"
  version @1 :UInt32;
}

struct Welcome {
  protocol @0 :UInt32;
  software @1 :Text;
  templateStamp @2 :Data;         # digest of the coordinator's kernel templates and their versions
  session @3 :Data;               # token: 16 random bytes; empty before version 2
  signingKey @4 :Data;            # Ed25519 public key (32 bytes) of the artifacts; empty: unsigned
  revocations @5 :UInt64;         # serial of the list of what was taken back; 0: nothing was
  endorsement @6 :Text;           # of signingKey, by the key that it replaced; empty: none
  follower @7 :Bool;              # it answers what is stored; another coordinator of its store leads
}

# ---- Client and coordinator ----
#
# A client asks by digest first. A coordinator that has neither the program nor a flight for it sends
# needGraph, and the client repeats the request with the canonical text of its graph. Every accepted
# request ends in one CompileReply; Progress may come before it. Binaries are asked for afterwards, by
# digest, and only those that the client does not hold.

struct CompileRequest {
  request @0 :UInt64;             # chosen by the client, unique on its connection
  graph @1 :Data;                 # digest of the canonical graph
  target @2 :Target;
  mode @3 :Mode;
  checkOnly @4 :Bool;             # answer notFound on a miss and start nothing
  graphText @5 :Text;             # empty on the first try
  priority @6 :Priority;
  detach @7 :Bool;                # answer `queued` once the flight is durable; nobody waits for it
  strict @8 :Bool;                # take no program that templates of another version made
  early @9 :Bool;                 # default: take a program that is built and not verified yet
  traceparent @10 :Text;          # W3C Trace Context, of the client's span; empty: not traced
  now @11 :Bool;                  # maxAutotune: take the default program until this one is tuned
}

struct Progress {
  request @0 :UInt64;
  kernels @1 :UInt32;
  kernelsDone @2 :UInt32;
  candidates @3 :UInt32;
  candidatesDone @4 :UInt32;
  elapsedS @5 :Float64;
  waiting @6 :Text;               # what its worker waits for, with its name; empty: nothing
}

struct CompileReply {
  request @0 :UInt64;
  union {
    error @1 :Error;
    outcome @2 :CacheOutcome;
  }
  programJson @3 :Text;           # the manifest, beside an outcome
  signature @4 :Data;             # Ed25519 (64 bytes) over the manifest; empty: unsigned
  memoryOnly @5 :Bool;            # the disk would not take it: it may be gone after a restart
  revocations @6 :UInt64;         # as in Welcome
  stale @7 :Bool;                 # templates of another version made it; its successor is tuned
  tier0 @8 :Bool;                 # the default program, until the one that was asked for is tuned
}

# The programs taken back, for a client that knows an older list: program/revocations.h has the text.
struct RevocationsReply {
  request @0 :UInt64;
  list @1 :Text;
  signature @2 :Data;             # Ed25519 (64 bytes) over the list
}

struct BlobRequest {
  request @0 :UInt64;
  digests @1 :List(Data);         # at most 4096
  credit @2 :UInt64;              # bytes that may come before the receiver gives more
  linksOk @3 :Bool;               # the receiver can read links; older coordinators send bytes
}

# One or more answer a BlobRequest; `last` ends the answer. The chunks of a blob come in order, and
# never more bytes than credit was given for, so that blobs hold up nothing that is sent behind them.
struct BlobReply {
  request @0 :UInt64;
  chunks @1 :List(Chunk);
  missing @2 :List(Data);         # digests
  last @3 :Bool;
  links @4 :List(Link);           # instead of chunks, for who asked with linksOk
  why @5 :Text;                   # the missing cannot be read now; empty: they are lost, and made again

  struct Chunk {
    digest @0 :Data;              # of the whole blob
    offset @1 :UInt64;
    total @2 :UInt64;             # bytes of the whole blob
    bytes @3 :Data;
  }
  # Anybody may GET the blob there for some minutes. What comes is checked against the digest; who
  # cannot have it there asks for the blob again, without linksOk.
  struct Link {
    digest @0 :Data;
    url @1 :Text;                 # https or http, at most 4096 bytes
  }
}

# The receiver has consumed that much more.
struct BlobCredit {
  request @0 :UInt64;
  bytes @1 :UInt64;
}

# A piece of a message that is larger than a frame (128 KiB): the pieces, in order, are its Envelope.
struct Part {
  bytes @0 :Data;
  last @1 :Bool;
}

struct StatsReply {
  request @0 :UInt64;
  hits @1 :UInt64;
  misses @2 :UInt64;
  joined @3 :UInt64;
  candidatesCompiled @4 :UInt64;
  candidatesMeasured @5 :UInt64;
  flightsOpen @6 :UInt64;
  retries @7 :UInt64;
  entries @8 :UInt64;
  bytes @9 :UInt64;
  corruptBlobs @10 :UInt64;
  malformedMessages @11 :UInt64;
  storeFailures @12 :UInt64;
  uptimeS @13 :Float64;
  workers @14 :List(Worker);
  requestsOpen @15 :UInt64;
  candidatesQueued @16 :UInt64;
  overloaded @17 :UInt64;         # requests refused since the start
  hedged @18 :UInt64;             # batches given to a second worker
  setAside @19 :UInt64;           # candidates given up after transient failures
  evicted @20 :UInt64;            # entries
  connections @21 :UInt64;
  detachedQueued @22 :UInt64;     # programs that are tuned though no client waits
  detachedRunning @23 :UInt64;
  detachedFailed @24 :UInt64;
  detached @25 :List(Detached);   # the first hundred of them
  programsStale @26 :UInt64;      # stored, of other templates than the coordinator's
  refused @27 :List(Refused);     # of all users for an operator, else of the asker
  artifacts @28 :List(Artifacts); # by kind
  answeredEarly @29 :UInt64;      # replies before all kernels were verified
  withdrawn @30 :UInt64;          # kernels answered so and found wrong
  answeredTier0 @31 :UInt64;      # replies with CompileReply.tier0
  spooled @32 :UInt64;            # programs and kernels on its disk that wait for the store, which
                                  # was away
  spooledBytes @33 :UInt64;       # with their binaries
  blobLinks @34 :UInt64;          # blobs answered with a link

  struct Worker {
    name @0 :Text;
    target @1 :Target;
    toolkit @2 :Text;
    leases @3 :UInt32;
    compiled @4 :UInt64;
    measured @5 :UInt64;
    idleS @6 :Float64;
    state @7 :Text;               # serving, draining, quarantined
    reason @8 :Text;              # why quarantined
    sentinelUs @9 :Float64;       # as last reported; 0: not measured
    sandbox @10 :Text;            # as it reports it; empty: an older worker
    waiting @11 :Text;            # likewise
    trust @12 :Text;              # of its key: screens or alone; empty: as usual
    role @13 :Text;               # measure or build; empty: an older coordinator
    buildsFor @14 :Text;          # of one that only builds: targets, with commas between
    built @15 :UInt64;            # candidates, by jobs of the kind build
  }

  struct Detached {
    program @0 :Data;             # digest: its key
    graph @1 :Data;               # digest
    target @2 :Target;
    mode @3 :Mode;
    state @4 :Text;               # queued, running, failed
    reason @5 :Text;              # why it failed, or had to wait
    lost @6 :UInt64;              # processes of workers that it has cost
  }

  struct Refused {
    user @0 :Text;
    count @1 :UInt64;             # since the coordinator started
  }

  struct Artifacts {              # counts but entries and bytes: since the coordinator started
    kind @0 :Text;
    entries @1 :UInt64;
    bytes @2 :UInt64;
    hits @3 :UInt64;
    misses @4 :UInt64;
    joined @5 :UInt64;            # misses that waited for somebody else's lease
    stored @6 :UInt64;
    evicted @7 :UInt64;
    damaged @8 :UInt64;           # did not have their signature when read back
  }
}

# ---- Artifacts of other compilers ----
#
# Values that the coordinator keeps for others, by kind and key (artifact_kinds.h). Each get and put
# has one reply. A get that misses may take a lease: who has it makes the value, and others that ask
# meanwhile learn that somebody does, and may wait. A lease ends with a put under its key, when it is
# released, with its holder's connection, and after the time it was asked for.

struct ArtifactGet {
  request @0 :UInt64;
  kind @1 :Text;
  key @2 :Text;                   # at most 1024 bytes
  waitMs @3 :UInt64;              # for the holder of the lease; 0: none
  leaseMs @4 :UInt64;             # of the lease that a miss takes; 0: none
}

struct ArtifactReply {
  request @0 :UInt64;
  union {
    error @1 :Error;              # notFound: a miss
    value @2 :Data;               # of a put: empty
  }
  signature @3 :Data;             # Ed25519 (64 bytes) over kind, key and value; of a put: empty
  lease @4 :UInt64;               # with a miss: the asker makes the value; 0: no lease
  leased @5 :Bool;                # with a miss: somebody else makes it
}

struct ArtifactPut {
  request @0 :UInt64;
  kind @1 :Text;
  key @2 :Text;
  value @3 :Data;                 # at most 16 MiB
}

# ---- Worker and coordinator ----
#
# State, not deltas. A report says what the worker holds and every result that has not been
# acknowledged; orders say what it should hold and which results may be forgotten. A lost message
# heals with the next pair.

struct WorkerReport {
  worker @0 :Text;                # stable name, unique per process
  target @1 :Target;
  toolkit @2 :Text;               # compiler build
  slots @3 :UInt32;               # leases it wants at once
  leases @4 :List(Lease);
  results @5 :List(CandidateResult);
  draining @6 :Bool;              # give it nothing new
  sentinelUs @7 :Float64;         # the sentinel kernel's latest median; 0: not measured
  deviceErrors @8 :UInt32;        # device faults since the worker started
  compiled @9 :UInt64;            # compiles since it started, also of leases taken back; 0: none, or
                                  # an older worker, whose results' `compiled` are counted instead
  libraries @10 :List(LibraryVersion);  # that its device can call, at most 16
  sandbox @11 :Text;              # what keeps compilers and kernels from its machine; empty: not said
  waiting @12 :Text;              # what it has waited for for a second or longer; empty: nothing
  builds @13 :Bool;               # takes jobs of the kind `build`, and verifies given binaries
  compilers @14 :UInt32;          # that it can run at once now; builds take no slot
  buildsFor @15 :List(Target);    # not empty: it has no device and only builds, for these

  struct LibraryVersion {
    name @0 :Text;                # "cublaslt"
    version @1 :Text;             # as the library says it
  }
  struct Lease {
    lease @0 :UInt64;
    epoch @1 :UInt64;
    done @2 :UInt32;              # candidates finished
  }
}

struct CandidateResult {
  lease @0 :UInt64;
  epoch @1 :UInt64;
  kernelKey @2 :Data;             # digest
  index @3 :UInt32;               # within the kernel's search space
  verdict @4 :Verdict;
  compiled @5 :Bool;              # a compiler ran for it
  log @6 :Text;
  samplesUs @7 :List(Float64);    # in the order taken
  recipeJson @8 :Text;
  binary @9 :Data;
  compileMs @10 :Float64;
  verifyMs @11 :Float64;
  measureMs @12 :Float64;
  localBytes @13 :UInt64;         # of a build: spilled registers, arrays in a GPU's local memory
}

struct WorkerOrders {
  jobs @0 :List(Job);             # leases it should hold and does not report yet
  leases @1 :List(UInt64);        # every lease it should hold; others are dropped
  acks @2 :List(Ack);             # results that are stored, or refused as stale
  drain @3 :Bool;                 # finish the leases, report, then exit

  struct Ack {
    lease @0 :UInt64;
    index @1 :UInt32;
  }
}

struct Job {
  lease @0 :UInt64;
  epoch @1 :UInt64;               # of the flight; results under another epoch are dropped
  kind @2 :JobKind;
  kernelKey @3 :Data;             # digest
  target @4 :Target;
  family @5 :Family;
  workloadText @6 :Text;
  policy @7 :MeasurementPolicy;
  seed @8 :UInt64;
  incumbentUs @9 :Float64;        # 0: none yet
  candidates @10 :List(Candidate);
  traceparent @11 :Text;          # W3C Trace Context, of the coordinator's span; empty: not traced

  struct Candidate {
    index @0 :UInt32;
    schedule @1 :Schedule;
    recipeJson @2 :Text;          # final, or what was built: the binary follows
    binary @3 :Data;
    signature @4 :Data;           # the coordinator's, Ed25519 over recipe and binary; empty: unsigned
    localBytes @5 :UInt64;        # as its builder said
  }
}

# ---- Operators ----

enum AdminKind {
  unset @0; drain @1; pin @2; unpin @3; collect @4; forgetFailed @5; forget @6; cancelDetached @7;
  tuneLog @8;
}

struct AdminRequest {
  request @0 :UInt64;
  kind @1 :AdminKind;
  worker @2 :Text;                # drain: by name; forget: what it reported; tuneLog: the same
  key @3 :Data;                   # pin, unpin, forget, cancelDetached: the program's digest; else
                                  # empty
  amount @4 :UInt64;              # collect: bytes to shrink the cache to; tuneLog: lastId of the page
                                  # before
  kernel @5 :Data;                # forget, tuneLog: digest, its key; else empty
  sinceMs @6 :UInt64;             # forget, tuneLog: what was reported since (Unix time); 0: at any
                                  # time
  dryRun @7 :Bool;                # forget: only say what would go
  template @8 :Text;              # tuneLog: of this kernel template; empty: of all
}

struct AdminReply {
  request @0 :UInt64;
  union {
    error @1 :Error;
    json @2 :Text;                # what was done, as `--json` prints it
  }
}
