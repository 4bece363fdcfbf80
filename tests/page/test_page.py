"""The web page, as people see it: a real coordinator and worker that tune, Chromium at 360 and 1,440 pixels, with
script and without. Each view is opened, filtered and followed, a program pinned, a worker drained.

KILN_PAGE_PICTURES=FOLDER keeps a picture of each view (docs/pictures has some)."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from browser import Browser, is_installed

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["KILN_BUILD_DIR"]).resolve() / "bin"
GRAPHS = ROOT / "tests" / "graphs" / "small"
AXE = Path(os.environ.get("KILN_AXE", "/usr/local/share/kiln-page/axe.min.js"))
PICTURES = os.environ.get("KILN_PAGE_PICTURES")
VIEWS = {"overview": "/", "tuning": "/tuning", "workers": "/workers", "misses": "/misses", "cache": "/cache",
         "audit": "/audit"}


class Service:
    """`kiln up` on loopback, with one worker for the CPU, and a program that is tuned already."""

    def __init__(self, *more: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ready = Path(self.folder.name) / "out"
        self.log = Path(self.folder.name) / "err"
        self.process = subprocess.Popen(
            [BIN / "kiln", "up", "--data-dir", f"{self.folder.name}/data", "--listen", "tcp://127.0.0.1:0", "--http",
             "127.0.0.1:0", *more], stdout=self.ready.open("w"), stderr=self.log.open("w"))
        for _ in range(2400):
            if self.ready.read_text().startswith("ready") and "http=" in self.log.read_text():
                break
            time.sleep(0.05)
        self.endpoint = self.ready.read_text().split()[1]
        self.http = self.log.read_text().split("http=")[1].split()[0]

    def compile(self, graph: str, wait: bool = True) -> "subprocess.Popen[bytes]":
        tuning = subprocess.Popen(
            [BIN / "kiln", "compile", GRAPHS / graph, "--mode", "max-autotune", "--no-fallback", "--coordinator",
             self.endpoint], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if wait:
            assert tuning.wait() == 0
        return tuning

    def json(self, path: str) -> Any:
        join = "&" if "?" in path else "?"
        with urllib.request.urlopen(f"{self.http}{path}{join}format=json", timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, headers: dict[str, str], **fields: str) -> tuple[int, str]:
        request = urllib.request.Request(self.http + path, urllib.parse.urlencode(fields).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.folder.cleanup()


def serious_faults(browser: Browser) -> list[Any]:
    """What axe finds on the page that is open."""
    found = browser.script(
        AXE.read_text() + "; axe.run().then(r => arguments[0](r.violations.map(v => [v.impact, v.id,"
        " v.nodes.length, v.nodes[0].html, v.nodes[0].failureSummary])))")
    return [each for each in found if each[0] in ("serious", "critical")]


@unittest.skipUnless(is_installed(), "chromium and chromium-driver are not installed: ops/setup --page")
class Page(unittest.TestCase):
    service: Service
    program: str
    kernel: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.service = Service()
        cls.addClassCleanup(cls.service.stop)
        for _ in ("tuned", "hit"):
            cls.service.compile("ffn_gelu.pt2")
        cls.program = cls.service.json("/cache")["programs"][0]["program"]
        cls.kernel = cls.service.json(f"/program/{cls.program}")["kernels"][0]["kernel"]

    def views(self) -> dict[str, str]:
        return {**VIEWS, "program": f"/program/{self.program}", "kernel": f"/kernel/{self.kernel}"}

    def test_views_are_whole_at_every_width_with_and_without_script(self) -> None:
        for width in (360, 1440):
            for script in (True, False):
                with Browser(width, script=script) as browser:
                    for name, path in self.views().items():
                        browser.open(self.service.http + path)
                        wide = browser.devtools("Page.getLayoutMetrics", {})["cssContentSize"]["width"]
                        self.assertLessEqual(wide, width, f"{name} at {width} is scrolled sideways")
                        over = browser.script("arguments[0]([...document.querySelectorAll('td')].filter("
                                              "e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent))")
                        self.assertEqual(over, [], f"{name} at {width}: cells lie over their neighbours")
                        self.assertEqual(browser.count("h1"), 1, name)
                        self.assertNotIn("Not answered", browser.text(), name)
                        if PICTURES and script:
                            browser.picture(Path(PICTURES) / f"{name}-{width}.png")

    def test_links_lead_where_they_say(self) -> None:
        with Browser(1440, script=False) as browser:
            browser.open(self.service.http)
            browser.click("Cache", "link text")
            browser.click(self.program[:12], "link text")
            self.assertTrue(browser.eventually(lambda: browser.url().endswith(self.program)))
            browser.click(self.kernel[:12], "link text")
            self.assertTrue(browser.eventually(lambda: browser.url().endswith(self.kernel)))
            self.assertTrue(browser.eventually(lambda: browser.count("svg.race circle") > 10), "the race is drawn")
            browser.click("look in the cache", "link text")
            self.assertTrue(browser.eventually(lambda: f"filter={self.kernel}" in browser.url()), browser.url())
            self.assertTrue(browser.eventually(lambda: self.program[:12] in browser.text()), browser.text())

    def test_a_program_names_the_lines_that_it_comes_from(self) -> None:
        kernels = self.service.json(f"/program/{self.program}")["kernels"]
        self.assertTrue(all(kernel["sources"].startswith("model.py:") for kernel in kernels), kernels)
        with Browser(1440, script=False) as browser:
            browser.open(f"{self.service.http}/kernel/{self.kernel}")
            self.assertIn(kernels[0]["sources"], browser.text())

    def test_the_source_of_a_kernel_and_of_its_candidates_is_read(self) -> None:
        for script in (False, True):
            with Browser(1440, script=script) as browser:
                browser.open(f"{self.service.http}/kernel/{self.kernel}")
                self.assertNotIn("extern", browser.text(), "the source is folded")
                browser.click("//summary[h2='Generated source']", "xpath")
                self.assertTrue(browser.eventually(lambda: "extern" in browser.text()))
                self.assertGreater(browser.count("pre .k"), 20, "its keywords are told apart")
                if PICTURES and script:
                    browser.picture(Path(PICTURES) / "source-1440.png")
                browser.click("#candidates-heading ~ .scroll tbody tr:last-child a")
                self.assertTrue(browser.eventually(lambda: "source=" in browser.url()), browser.url())
        shown = self.service.json(f"/kernel/{self.kernel}")
        other = next(each["schedule"] for each in shown["candidates"]
                     if each["schedule"] != shown["schedule"] and each["verdict"] == "ok")
        of_other = self.service.json(f"/kernel/{self.kernel}?source={urllib.parse.quote(other)}")["source"]
        self.assertIn("extern", of_other)
        self.assertNotEqual(of_other, shown["source"])

    def test_lists_are_filtered(self) -> None:
        with Browser(1440, script=False) as browser:
            for path, good in (("/workers", "local"), ("/cache", "matmul"), (f"/kernel/{self.kernel}", "ok"),
                               ("/misses", "tuned")):
                browser.open(self.service.http + path)
                browser.write("input[name=filter]", good)
                browser.click("form.filter button")
                self.assertTrue(browser.eventually(  # a click returns before the form's answer is there
                    lambda: "filter=" in browser.url() and browser.count("tbody tr") > 0), path)
                browser.open(f"{self.service.http}{path}?filter=nothing-is-called-that")
                self.assertEqual(browser.count("form.filter + .scroll tbody tr"), 0, path)

    def test_a_program_in_flight_is_seen_without_asking_again(self) -> None:
        with Browser(1440) as browser:
            browser.open(self.service.http + "/tuning")
            self.assertIn("Nothing is in flight.", browser.text())
            tuning = self.service.compile("bert.pt2", wait=False)
            self.assertTrue(browser.eventually(lambda: browser.count("svg.bar") > 2), "a bar a kernel")
            if PICTURES:
                browser.eventually(lambda: self.service.json("/tuning")["open"][0]["candidates"] > 0.3, 20)
                browser.eventually(lambda: False, 4)
                browser.picture(Path(PICTURES) / "in-flight-1440.png")
            self.assertEqual(tuning.wait(), 0)
            self.assertTrue(browser.eventually(lambda: "Nothing is in flight." in browser.text()))

    def test_a_program_is_pinned_and_the_audit_says_so(self) -> None:
        for script in (False, True):
            with Browser(1440, script=script) as browser:
                browser.open(f"{self.service.http}/program/{self.program}")
                browser.click("//button[text()='Pin' or text()='Unpin']", "xpath")
                pinned = not script  # then it is taken off again
                self.assertTrue(browser.eventually(  # a click returns before the form's answer is there
                    lambda expected=pinned: self.service.json(f"/program/{self.program}")["pinned"] == expected))
                browser.open(self.service.http + "/audit")
                self.assertIn(("pin " if pinned else "unpin ") + self.program[:12], browser.text())

    def test_no_serious_fault_for_those_who_cannot_see_or_point(self) -> None:
        if not AXE.exists():
            self.skipTest(f"no {AXE}: ops/setup --page")
        for dark in (False, True):
            with Browser(1440, dark=dark) as browser:
                for name, path in self.views().items():
                    browser.open(self.service.http + path)
                    self.assertEqual(serious_faults(browser), [], f"{name}, {'dark' if dark else 'light'}")

    def test_a_keyboard_reaches_everything(self) -> None:
        with Browser(1440, script=True) as browser:
            browser.open(self.service.http + "/workers")
            unreached = browser.script(
                "arguments[0]([...document.querySelectorAll('a, button, input:not([type=hidden]), .scroll')]"
                ".filter(each => each.tabIndex < 0).map(each => each.outerHTML))")
            self.assertEqual(unreached, [])

    def test_hostile_text_in_addresses_shows_as_text(self) -> None:
        with Browser(1440) as browser:
            hostile = "<script>document.title='taken'</script>\u202e'\"><img src=x onerror=document.title='taken'>"
            for path in ("/workers?filter=", "/cache?filter=", "/misses?filter=", "/tuning?filter=", "/audit?filter=",
                         f"/kernel/{self.kernel}?filter=", f"/kernel/{self.kernel}?source=",
                         f"/program/{self.program}?filter="):
                browser.open(f"{self.service.http}{path}{urllib.parse.quote(hostile)}")
                title = browser.ask("GET", f"{browser.session}/title")
                self.assertNotIn("taken", title, path)
                self.assertEqual(browser.count("main script, main img"), 0, path)
            long = "<" * 4096
            browser.open(f"{self.service.http}/workers?filter={urllib.parse.quote(long)[:7000]}")
            self.assertEqual(browser.count("h1"), 1)


@unittest.skipUnless(is_installed(), "chromium and chromium-driver are not installed: ops/setup --page")
class MailedPage(unittest.TestCase):
    """What `kiln explain --html` writes, opened as a file."""

    page: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.page = Path(folder.name) / "ffn.html"
        subprocess.run([BIN / "kiln", "explain", GRAPHS / "ffn_gelu.pt2", "--target", "cpu:x86-64-v3",
                        "--html", cls.page], check=True, stdout=subprocess.DEVNULL)

    def test_it_is_whole_at_every_width_and_needs_nothing_else(self) -> None:
        for width in (360, 1440):
            with Browser(width) as browser:
                browser.open(self.page.as_uri())
                wide = browser.devtools("Page.getLayoutMetrics", {})["cssContentSize"]["width"]
                self.assertLessEqual(wide, width, f"at {width} it is scrolled sideways")
                self.assertEqual(browser.count("h1"), 1)
                fetched = browser.script("arguments[0](performance.getEntriesByType('resource').map(e => e.name))")
                self.assertEqual(fetched, [])
                self.assertEqual(browser.count("script, link, img, iframe"), 0)
                if PICTURES:
                    browser.picture(Path(PICTURES) / f"explain-{width}.png")

    def test_source_and_candidates_open(self) -> None:
        with Browser(1440) as browser:
            browser.open(self.page.as_uri())
            self.assertNotIn("extern", browser.text(), "the source is folded")
            for summary in range(browser.count("summary")):
                browser.click(f"(//summary)[{summary + 1}]", "xpath")
            self.assertIn("extern", browser.text())
            self.assertGreater(browser.count("pre .k"), 20, "its keywords are told apart")
            if PICTURES:
                browser.picture(Path(PICTURES) / "explain-open.png")

    def test_paper_has_all_of_it(self) -> None:
        with Browser(1440) as browser:
            browser.open(self.page.as_uri())
            browser.devtools("Emulation.setEmulatedMedia", {"media": "print"})
            hidden = browser.script(
                "arguments[0]([...document.querySelectorAll('pre')].filter(e => !e.offsetHeight).length)")
            self.assertEqual(hidden, 0, "what is folded on a screen is printed")

    def test_no_serious_fault_for_those_who_cannot_see_or_point(self) -> None:
        if not AXE.exists():
            self.skipTest(f"no {AXE}: ops/setup --page")
        for dark in (False, True):
            with Browser(1440, dark=dark) as browser:
                browser.open(self.page.as_uri())
                browser.script("document.querySelectorAll('details').forEach(e => { e.open = true; }); arguments[0]()")
                self.assertEqual(serious_faults(browser), [], "dark" if dark else "light")


class Forms(unittest.TestCase):
    """What needs no browser: who may act, and what every answer forbids browsers to do."""

    service: Service

    @classmethod
    def setUpClass(cls) -> None:
        cls.service = Service()
        cls.addClassCleanup(cls.service.stop)

    def test_no_other_site_acts_in_somebodys_name(self) -> None:
        fields = {"kind": "drain", "worker": "local-0"}
        for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            status, said = self.service.post("/act", headers, token="0" * 64, **fields)
            self.assertEqual(status, 403, said)
        self.assertEqual(self.service.post("/act", {"Host": "evil.example"}, token="0" * 64, **fields)[0], 401)
        self.assertEqual(self.service.json("/workers")["workers"][0]["state"], "serving")

    def test_a_form_of_the_page_acts(self) -> None:
        with urllib.request.urlopen(self.service.http + "/workers", timeout=60) as answer:
            self.assertIn("default-src 'self'", answer.headers["Content-Security-Policy"])
            self.assertEqual(answer.headers["Cache-Control"], "no-store")
            token = re.search(r'name="token" value="([0-9a-f]{64})"', answer.read().decode())
        assert token
        for fields in ({"kind": "pin", "program": "0" * 64}, {"kind": "cancel", "program": "1" * 64}):
            self.service.post("/act", {}, token=token[1], back="/audit", **fields)
        acts = self.service.json("/audit")["acts"]
        self.assertEqual([each["done"] for each in acts[:2]], [False, False], "there are no such programs")
        self.assertEqual(self.service.post("/act", {}, token=token[1], kind="format", program="0" * 64)[0], 400)
        self.assertEqual(self.service.post("/act", {}, token=token[1], kind="pin", program="nonsense")[0], 400)

    def test_what_is_not_there_is_said_so(self) -> None:
        for path in ("/nothing", f"/program/{'0' * 64}", f"/kernel/{'0' * 64}", "/kernel/nonsense"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.service.json(path)
            self.assertEqual(refused.exception.code, 404, path)
            refused.exception.close()


@unittest.skipUnless(is_installed(), "chromium and chromium-driver are not installed: ops/setup --page")
class Draining(unittest.TestCase):
    def test_a_worker_is_drained_from_a_phone(self) -> None:
        service = Service()
        self.addCleanup(service.stop)
        with Browser(360) as browser:
            browser.open(service.http + "/workers")
            name = service.json("/workers")["workers"][0]["name"]
            browser.click("//button[text()='Drain']", "xpath")  # the question is answered yes
            browser.text()  # answers the question
            # `kiln up` starts one that has drained again.
            self.assertTrue(browser.eventually(lambda: "a worker ended" in service.log.read_text() or all(
                each["state"] == "draining" for each in service.json("/workers")["workers"])))
            browser.open(service.http + "/audit")
            self.assertIn(f"drain {name}", browser.text())


@unittest.skipUnless(is_installed(), "chromium and chromium-driver are not installed: ops/setup --page")
class HostileNames(unittest.TestCase):
    """A worker with a name that is no name, which tunes a program: every view that names it shows its text."""

    NAME = "<script>document.title='taken'</script>\u202e'\"><img src=x onerror=document.title='taken'>&lt;" + "<" * 140

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ready = Path(folder.name) / "ready"
        self.start("kiln-coordinator", "--data-dir", f"{folder.name}/data", "--listen", "tcp://127.0.0.1:0", "--http",
                   "127.0.0.1:0", "--ready-file", ready)
        for _ in range(1200):
            if ready.exists():
                break
            time.sleep(0.05)
        where = json.loads(ready.read_text())
        self.http = where["http"]
        self.start("kiln-worker", "--coordinator", where["endpoint"], "--name", self.NAME, "--http", "none")
        subprocess.run([BIN / "kiln", "compile", GRAPHS / "softmax.pt2", "--mode", "max-autotune", "--no-fallback",
                        "--coordinator", where["endpoint"]], check=True, stdout=subprocess.DEVNULL)

    def start(self, *command: object) -> None:
        program = subprocess.Popen([BIN / str(command[0]), *map(str, command[1:])], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(program.wait)
        self.addCleanup(program.terminate)  # first: cleanups run from the last to the first

    def json(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.http}{path}?format=json", timeout=60) as answer:
            return json.load(answer)

    def test_are_shown_as_text(self) -> None:
        program = self.json("/cache")["programs"][0]["program"]
        kernel = self.json(f"/program/{program}")["kernels"][0]["kernel"]
        self.assertEqual(self.json("/workers")["workers"][0]["name"], self.NAME)
        for width in (360, 1440):
            with Browser(width) as browser:
                for path in (*VIEWS.values(), f"/program/{program}", f"/kernel/{kernel}"):
                    browser.open(self.http + path)
                    self.assertNotIn("taken", browser.ask("GET", f"{browser.session}/title"), path)
                    self.assertEqual(browser.count("main script, main img"), 0, path)
                    wide = browser.devtools("Page.getLayoutMetrics", {})["cssContentSize"]["width"]
                    self.assertLessEqual(wide, width, f"{path} at {width} is scrolled sideways")
                    if path in ("/workers", f"/program/{program}", f"/kernel/{kernel}"):
                        self.assertIn("<script>", browser.text(), path)
        with Browser(1440, script=False) as browser:  # a button says the name as it is
            browser.open(self.http + "/workers")
            browser.click("//button[text()='Drain']", "xpath")
            self.assertTrue(browser.eventually(lambda: self.json("/audit")["acts"] != []))
        self.assertEqual(self.json("/audit")["acts"][0]["request"], f"drain {self.NAME}")
        self.assertTrue(self.json("/audit")["acts"][0]["done"])


class Keys(unittest.TestCase):
    """A coordinator that takes keys: reading from elsewhere, and acting from anywhere, take a token."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for role in ("read", "admin"):
            self.kiln("keys", "new", role, "--role", role, "--data-dir", self.folder / "data", "--out",
                      self.folder / f"{role}.key")
        ready = self.folder / "ready"
        coordinator = subprocess.Popen(
            [BIN / "kiln-coordinator", "--data-dir", self.folder / "data", "--keys", self.folder / "data" / "keys",
             "--listen", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(coordinator.wait)
        self.addCleanup(coordinator.terminate)  # first: cleanups run from the last to the first
        for _ in range(400):
            if ready.exists():
                break
            time.sleep(0.05)
        self.http = json.loads(ready.read_text())["http"]

    def kiln(self, *arguments: object) -> str:
        return subprocess.run([BIN / "kiln", *map(str, arguments)], capture_output=True, text=True, check=True).stdout

    def get(self, path: str, **headers: str) -> int:
        request = urllib.request.Request(self.http + path, headers={each.replace("_", "-"): value
                                                                    for each, value in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    @unittest.skipUnless(is_installed(), "chromium and chromium-driver are not installed: ops/setup --page")
    def test_a_token_signs_in(self) -> None:
        token = self.kiln("page-token", "--key", self.folder / "admin.key", "--role", "admin").strip()
        with Browser(360) as browser:
            browser.open(self.http + "/sign-in")
            if PICTURES:
                browser.picture(Path(PICTURES) / "sign-in-360.png")
            browser.write("input[name=token]", "kiln1.nonsense")
            browser.click("button")
            self.assertTrue(browser.eventually(lambda: "no token of this page" in browser.text()), browser.text())
            browser.write("input[name=token]", token)
            browser.click("button")
            self.assertTrue(browser.eventually(lambda: "Overview" in browser.text()), browser.text())
            self.assertIn("admin", browser.text())
            browser.click("//button[text()='Sign out']", "xpath")
            self.assertTrue(browser.eventually(lambda: browser.url().endswith("/sign-in"), 5), browser.url())

    def test_what_comes_from_elsewhere_takes_a_token(self) -> None:
        read = self.kiln("page-token", "--key", self.folder / "read.key").strip()
        self.assertEqual(self.get("/"), 200, "this machine reads")
        elsewhere = {"X_Forwarded_For": "10.0.0.7"}
        self.assertEqual(self.get("/", **elsewhere), 401)
        self.assertEqual(self.get("/events", **elsewhere), 401)
        self.assertEqual(self.get("/cache?format=json", **elsewhere), 401)
        self.assertEqual(self.get("/", Authorization=f"Bearer {read}", **elsewhere), 200)
        self.assertEqual(self.get("/healthz", **elsewhere), 200, "probes go on")
        refused = subprocess.run([BIN / "kiln", "page-token", "--key", self.folder / "read.key", "--role", "admin"],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("does not cover admin", refused.stderr)


if __name__ == "__main__":
    if PICTURES:
        os.makedirs(PICTURES, exist_ok=True)
    unittest.main(verbosity=2)
