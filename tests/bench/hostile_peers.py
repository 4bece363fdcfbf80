#!/usr/bin/env python3
"""What hostile peers make a coordinator keep: its memory before, at most during, and after each attack.

  tests/bench/hostile_peers.py build/release/bin [WORD...]     only attacks whose name has a WORD

Starts a kiln-coordinator for each attack, so that none inherits what another left: on loopback without
keys (where anybody on the machine may attack), then with keys, attacked by somebody who has one of each
role. Prints a line for each attack, with what an honest client saw that went on asking for statistics
and for a blob (answers, and the longest it waited for one); exits 1 when the memory ever grew by more
than 1 GiB, the honest client lost its connection or was refused, or the coordinator does not answer
within 10 s of an attack's end. Needs the tool `capnp`.
"""
import ctypes, os, socket, struct, subprocess, sys, tempfile, threading, time

LIMIT_MIB = 1024


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Coordinator:
    def __init__(self, bin_dir, *more, data=None):
        self.bin = bin_dir
        self.data = data or tempfile.mkdtemp(prefix="kiln-hostile-")
        self.process = subprocess.Popen(
            [f"{bin_dir}/kiln-coordinator", "--data-dir", self.data, "--http", "none", *more],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.endpoint = self.process.stdout.readline().split()[1]
        self.port = int(self.endpoint.rsplit(":", 1)[1])
        self.pid = self.process.pid

    def answers(self, key=None):
        command = [f"{self.bin}/kiln", "stats", "--coordinator", self.endpoint, "--json"]
        environment = dict(os.environ, **({"KILN_KEY": key} if key else {}))
        until = time.time() + 10
        while time.time() < until:
            if subprocess.run(command, env=environment, capture_output=True).returncode == 0:
                return True
        return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Raw:
    """Somebody without a key, who speaks ZMTP by hand."""

    def __init__(self, port, greet=True):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(20)
        if greet:
            self.socket.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL".ljust(64, b"\0"))
            ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
            self.socket.sendall(b"\x04" + bytes([len(ready)]) + ready)
            got = b""
            while len(got) < 66:
                piece = self.socket.recv(66 - len(got))
                if not piece:
                    raise OSError("closed")
                got += piece
            self.socket.recv(got[65])

    def pour(self, data, seconds=8, limit=8 << 30):
        until, sent = time.time() + seconds, 0
        try:
            while time.time() < until and sent < limit:
                self.socket.sendall(data)
                sent += len(data)
        except OSError:
            pass
        return sent

    def sealed(self, body):
        """As it goes on the wire: one message."""
        return frame(body)

    def say(self, body):
        self.socket.sendall(self.sealed(body))

    def take(self, size):
        got = b""
        while len(got) < size:
            piece = self.socket.recv(size - len(got))
            if not piece:
                raise OSError("closed")
            got += piece
        return got

    def hear(self):
        """The next message; probes and heartbeats are none."""
        while True:
            flags = self.take(1)[0]
            size = struct.unpack(">Q", self.take(8))[0] if flags & 2 else self.take(1)[0]
            body = self.take(size)
            if flags & 4 and body.startswith(b"\x04PING"):
                self.socket.sendall(bytes([4, size - 2]) + b"\x04PONG" + body[7:])
            elif body and not flags & 4:
                return body


SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../schema/kiln.capnp")


def encoded(text):
    """An Envelope in Cap'n Proto's text form, as bytes."""
    return subprocess.run(["capnp", "convert", "text:binary", SCHEMA, "Envelope"],
                          input=text.encode(), capture_output=True, check=True).stdout


def said_hello(port, key=None, hello=None):
    peer = CurvePeer(port, key) if key else Raw(port)
    peer.say(hello or HELLO)
    return peer


class Honest(threading.Thread):
    """Somebody who goes on asking, ten times a second: for the statistics, then for a blob."""

    def __init__(self, port, key=None):
        super().__init__()
        self.peer, self.done = said_hello(port, key), threading.Event()
        self.peer.hear()  # Welcome
        self.answers, self.refused, self.longest, self.lost = 0, 0, 0.0, False
        self.start()

    def run(self):
        try:
            while not self.done.wait(0.1):
                for question, answer in ((STATS, b""), (BLOB, ABSENT)):
                    started = time.time()
                    self.peer.say(question)
                    self.refused += answer not in self.peer.hear()  # a blob that is missing is named
                    self.answers += 1
                    self.longest = max(self.longest, time.time() - started)
        except OSError:
            self.lost = True

    def report(self):
        self.done.set()
        self.join()
        return ("LOST its connection" if self.lost else
                f"{self.answers} answers, longest wait {self.longest * 1000:.0f} ms" +
                (f", REFUSED {self.refused} times" if self.refused else ""))

    def content(self):
        return not self.lost and not self.refused


def frame(body, more=False, claimed=None):
    return struct.pack(">BQ", 3 if more else 2, len(body) if claimed is None else claimed) + body


def in_parallel(count, work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def endless_empty(port):
    Raw(port).pour(b"\x01\x00" * 32768)


def endless_large(port):
    Raw(port).pour(frame(b"x" * 65536, more=True) * 16)


def endless_from_many(port):
    in_parallel(32, lambda i: Raw(port).pour(b"\x01\x00" * 32768, 4))


def little_from_many(port):
    kept = []
    for _ in range(1000):
        peer = Raw(port)
        peer.pour(b"\x01\x00" * 50000, 1, 1)
        kept.append(peer)
    time.sleep(2)


def half_frames(port):
    kept = []
    for _ in range(1000):
        peer = Raw(port)
        peer.pour(frame(b"x" * 120000, claimed=130000), 1, 1)
        kept.append(peer)
    time.sleep(2)


def idle(port):
    kept = [Raw(port) for _ in range(5000)]
    time.sleep(1)
    return kept


def half_open(port):
    kept = [Raw(port, greet=False) for _ in range(5000)]
    for peer in kept:
        peer.socket.send(b"\xff\0\0\0")
    time.sleep(2)
    return kept


def oversize(port):
    in_parallel(50, lambda i: Raw(port).pour(frame(b"x", claimed=1 << 42), 1, 1))


def garbage(port):
    def one(_):
        for _ in range(20):
            try:
                Raw(port).pour(frame(os.urandom(65536)), 2)
            except OSError:
                pass

    in_parallel(16, one)


def again_and_again(port, count, seconds, work):
    """`count` connections at a time, each another one as soon as it is cut."""
    until = time.time() + seconds

    def one(_):
        while time.time() < until:
            try:
                work(port, until)
            except OSError:
                pass

    in_parallel(count, one)


def hello_storm(port):
    again_and_again(port, 16, 5,
                    lambda p, until: Raw(p).pour(frame(HELLO) * 100, until - time.time()))


def come_and_go(port):
    again_and_again(port, 16, 5, lambda p, until: said_hello(p).socket.close())


def knock_and_go(port):
    again_and_again(port, 16, 5, lambda p, until: Raw(p, greet=False).socket.close())


def slow_readers(port):
    def one(p, until):
        peer = said_hello(p)
        peer.socket.settimeout(1)
        peer.pour(frame(STATS) * 200, until - time.time())

    again_and_again(port, 64, 6, one)


def pour_after_hello(port, count, bodies, key=None, hello=None):
    def one(p, until):
        peer = said_hello(p, key, hello)
        while time.time() < until:
            peer.socket.sendall(b"".join(peer.sealed(body) for body in bodies))

    again_and_again(port, count, 6, one)


def unread(port, reader=None, worker=None):
    """Large answers that nobody reads: the statistics of workers with long names."""
    name = "n" * 250
    kept = []
    for i in range(40):
        kept.append(said_hello(port, worker, WORKER_HELLO))
        kept[-1].say(encoded(
            f'(workerReport = (worker = "{i:03}{name}", toolkit = "{name}", slots = 1, target = '
            f'(backend = cpu, isa = "x86-64-v3", deviceModel = "{name}", toolkit = "{name}")))'))
    time.sleep(0.5)

    def one(_):
        peer = said_hello(port, reader)
        peer.socket.settimeout(1)
        until = time.time() + 8
        try:
            while time.time() < until:
                peer.socket.sendall(b"".join(peer.sealed(STATS) for _ in range(20)))
                time.sleep(0.05)
        except OSError:
            pass
        kept.append(peer)

    in_parallel(150, one)
    return kept


def blob_flood(port, key=None):
    some = "0x\"" + "61" * 32 + "\""
    digests = ", ".join([some] * 4096)
    asked = [encoded(f"(blobRequest = (request = {i}, digests = [{digests}], credit = 0))")
             for i in range(1, 17)]
    pour_after_hello(port, 64, [part for body in asked for part in parts_of(body)], key)


def graph_flood(port, key=None):
    text = "x" * 100_000
    target = "backend = cpu, isa = \"x86-64-v3\""
    asked = [encoded(f"(compileRequest = (request = {i}, graph = 0x\"{i:064x}\", "
                     f"target = ({target}), mode = default, graphText = \"{text}\"))")
             for i in range(1, 17)]
    pour_after_hello(port, 32, asked, key)


def lists_of_nothing(port, key=None):
    """Elements without any bytes, as many as the bytes beside them allow: each becomes an object."""
    body = bytearray(encoded('(workerReport = (target = (backend = cpu), results = [(log = "' +
                             "w" * 100_000 + '"), (), ()]))'))
    for at in range(8, len(body) - 8, 8):
        pointer = struct.unpack_from("<Q", body, at)[0]
        if pointer & 3 != 1 or pointer >> 32 & 7 != 7:
            continue
        tag = at + 8 + (struct.unpack_from("<i", body, at)[0] >> 2) * 8
        struct.pack_into("<Q", body, at, pointer & 0x7ffffffff)
        struct.pack_into("<Q", body, tag, 12_000 << 2)
        pour_after_hello(port, 16, [bytes(body)], key, WORKER_HELLO)
        return
    raise AssertionError("the report has a list")


def many_workers(port, key=None):
    """Each connection another worker, of a name as long as may be."""
    def one(p, until):
        peer = said_hello(p, key, WORKER_HELLO)
        peer.say(report.replace(b"@" * 16, os.urandom(8).hex().encode()))
        time.sleep(0.02)
        peer.socket.close()

    report = encoded('(workerReport = (worker = "' + "@" * 16 + "n" * 240 + '", slots = 1, target = '
                     '(backend = cpu, isa = "x86-64-v3")))')
    again_and_again(port, 16, 6, one)


def sodium(name, size, *arguments):
    out = ctypes.create_string_buffer(size)
    assert getattr(SODIUM, name)(out, *arguments) == 0, name
    return out.raw


class CurvePeer(Raw):
    """Somebody who was let in, and speaks CurveZMQ (RFC 26) by hand to send what libzmq would not."""

    def __init__(self, port, key):
        fields = dict(line.split(" = ", 1) for line in open(key).read().splitlines()
                      if " = " in line and not line.startswith("#"))
        server, public, secret = (z85(fields[name]) for name in ("server", "public", "secret"))
        brief_public, brief_secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
        SODIUM.crypto_box_keypair(brief_public, brief_secret)
        mine = brief_public.raw
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(20)
        self.socket.sendall((b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE".ljust(32, b"\0")).ljust(64, b"\0"))
        self.take(64)
        hello = box(bytes(64), b"CurveZMQHELLO---" + nonce(1), server, brief_secret.raw)
        self.command(b"\x05HELLO\x01\0" + bytes(72) + mine + nonce(1) + hello)
        welcome = self.answer(b"\x07WELCOME")
        opened = sodium("crypto_box_open_easy", 128, welcome[16:], ctypes.c_ulonglong(144),
                        b"WELCOME-" + welcome[:16], server, brief_secret.raw)
        theirs, cookie = opened[:32], opened[32:]
        seed = os.urandom(16)
        vouch = box(mine + server, b"VOUCH---" + seed, theirs, secret)
        metadata = b"\x0bSocket-Type\0\0\0\x06DEALER"
        initiate = box(public + seed + vouch + metadata, b"CurveZMQINITIATE" + nonce(2), theirs,
                       brief_secret.raw)
        self.command(b"\x08INITIATE" + cookie + nonce(2) + initiate)
        self.answer(b"\x05READY")
        self.shared = sodium("crypto_box_beforenm", 32, theirs, brief_secret.raw)
        self.sent = 2

    def command(self, body):
        self.socket.sendall((struct.pack(">BQ", 6, len(body)) if len(body) > 255
                             else bytes([4, len(body)])) + body)

    def answer(self, name):
        flags = self.take(1)[0]
        size = struct.unpack(">Q", self.take(8))[0] if flags & 2 else self.take(1)[0]
        body = self.take(size)
        assert flags & 4 and body.startswith(name), body
        return body[len(name):]

    def sealed(self, body, flags=0):
        self.sent += 1
        text = bytes([flags]) + body
        sealed = sodium("crypto_box_easy_afternm", len(text) + 16, text,
                        ctypes.c_ulonglong(len(text)), b"CurveZMQMESSAGEC" + nonce(self.sent),
                        self.shared)
        return frame(b"\x07MESSAGE" + nonce(self.sent) + sealed)

    def hear(self):
        while True:
            wire = self.take(1)[0]
            size = struct.unpack(">Q", self.take(8))[0] if wire & 2 else self.take(1)[0]
            body = self.take(size)
            assert body.startswith(b"\x07MESSAGE"), body[:16]
            text = sodium("crypto_box_open_easy_afternm", size - 32, body[16:],
                          ctypes.c_ulonglong(size - 16), b"CurveZMQMESSAGES" + body[8:16],
                          self.shared)
            flags, text = text[0], text[1:]
            if flags & 4 and text.startswith(b"\x04PING"):
                self.socket.sendall(self.sealed(b"\x04PONG" + text[7:], flags=4))
            elif text and not flags & 4:
                return text


SODIUM = ctypes.CDLL("libsodium.so.23")


def nonce(number):
    return struct.pack(">Q", number)


def box(text, nonce_bytes, public, secret):
    return sodium("crypto_box_easy", len(text) + 16, text, ctypes.c_ulonglong(len(text)),
                  nonce_bytes, public, secret)


def z85(text):
    digits = ("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
    out = b""
    for i in range(0, len(text), 5):
        value = 0
        for character in text[i:i + 5]:
            value = value * 85 + digits.index(character)
        out += struct.pack(">I", value)
    return out


def curve_endless(port, key, body):
    peer = CurvePeer(port, key)
    until, sent = time.time() + 5, 0
    try:
        while time.time() < until:
            piece = b"".join(peer.sealed(body, flags=1) for _ in range(100))
            peer.socket.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    assert sent > 0


def attack(coordinator, name, work, key=None):
    honest = Honest(coordinator.port, key)
    before, peak, stop = resident_mib(coordinator.pid), [0.0], threading.Event()

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], resident_mib(coordinator.pid))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.time()
    held = work()
    seconds = time.time() - started
    seen = honest.report()
    serving = coordinator.answers(key)
    stop.set()
    watcher.join()
    del held
    time.sleep(1)
    after = resident_mib(coordinator.pid)
    print(f"{name:<58} {before:7.0f} {peak[0]:7.0f} {after:7.0f} MiB  {seconds:5.1f} s  "
          f"{'answers' if serving else 'DOES NOT ANSWER'}; {seen}", flush=True)
    return serving and honest.content() and peak[0] - before < LIMIT_MIB


def main():
    bin_dir, only = sys.argv[1], sys.argv[2:]

    def chosen(name):
        return not only or any(word in name for word in only)

    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
    print(f"{'attack':<58} {'before':>7} {'peak':>7} {'after':>7}")
    good = True
    for name, work in (
            ("one message of endless empty frames", endless_empty),
            ("one message of endless 64 KiB frames", endless_large),
            ("the same of empty frames, 32 connections", endless_from_many),
            ("1,000 connections keep 100 KB of empty frames each", little_from_many),
            ("1,000 connections send 120 KB of a 130 KB frame", half_frames),
            ("5,000 idle connections", idle),
            ("5,000 half-open handshakes", half_open),
            ("frames that claim 4 TiB", oversize),
            ("64 KiB frames of garbage, 320 connections", garbage),
            ("Hello without end, 16 connections at a time", hello_storm),
            ("come, say Hello and go, 16 at a time", come_and_go),
            ("come and go without a word, 16 at a time", knock_and_go),
            ("ask and never read, 64 connections", slow_readers),
            ("ask for 40 KB and never read, 150 connections", unread),
            ("16 x 4,096 blobs without credit, 64 connections", blob_flood),
            ("graphs of 100 KB that are none, 32 connections", graph_flood),
            ("reports with lists of nothing, 16 connections", lists_of_nothing),
            ("another worker each time, 16 connections", many_workers)):
        if not chosen(name):
            continue
        coordinator = Coordinator(bin_dir, "--listen", "tcp://127.0.0.1:0")
        good &= attack(coordinator, name, lambda: work(coordinator.port))
        coordinator.stop()
    data = tempfile.mkdtemp(prefix="kiln-hostile-")
    keys = {}
    for name, role in (("bob", "read"), ("eve", "read"), ("sue", "submit"), ("walt", "worker")):
        keys[name] = f"{data}/{name}.key"
        subprocess.run([f"{bin_dir}/kiln", "keys", "new", name, "--role", role, "--data-dir", data,
                        "--out", keys[name]], check=True, stdout=subprocess.DEVNULL)
    eve, sue, walt = keys["eve"], keys["sue"], keys["walt"]
    for name, work in (
            ("with a key: endless empty frames", lambda port: curve_endless(port, eve, b"")),
            ("with a key: endless 64 KiB frames", lambda port: curve_endless(port, eve, b"x" * 65536)),
            ("without one: 5,000 half-open handshakes", half_open),
            ("with a key: 40 KB never read, 150 connections", lambda port: unread(port, eve, walt)),
            ("with a key: 16 x 4,096 blobs without credit", lambda port: blob_flood(port, eve)),
            ("a submitter: graphs of 100 KB that are none", lambda port: graph_flood(port, sue)),
            ("a worker: reports with lists of nothing", lambda port: lists_of_nothing(port, walt)),
            ("a worker: another name each time", lambda port: many_workers(port, walt))):
        if not chosen(name):
            continue
        coordinator = Coordinator(bin_dir, "--listen", "tcp://127.0.0.1:0", "--keys", f"{data}/keys",
                                  data=data)
        good &= attack(coordinator, name, lambda: work(coordinator.port), keys["bob"])
        coordinator.stop()
    sys.exit(0 if good else 1)


PART_BYTES = 128 << 10  # schema/codec.h


def parts_of(body):
    """The frames' bodies of a message, which may be too large for one."""
    if len(body) <= PART_BYTES + 4096:
        return [body]
    pieces = [body[i:i + PART_BYTES] for i in range(0, len(body), PART_BYTES)]
    return [encoded(f'(part = (bytes = 0x"{piece.hex()}", last = '
                    f'{"true" if piece is pieces[-1] else "false"}))') for piece in pieces]


HELLO = encoded('(hello = (protocol = 2, role = client, software = "hostile"))')
WORKER_HELLO = encoded('(hello = (protocol = 2, role = worker, software = "hostile"))')
STATS = encoded("(statsRequest = 1)")
ABSENT = b"b" * 32
BLOB = encoded(f'(blobRequest = (request = 1, digests = [0x"{ABSENT.hex()}"], credit = 1000))')
main()
