"""Browser: Debian's Chromium without a screen, spoken to by the WebDriver protocol (https://www.w3.org/TR/webdriver2/)
and nothing but Python's own library."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def is_installed() -> bool:
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


def started_driver() -> tuple[subprocess.Popen[str], str]:
    """A chromedriver and its address. It takes a free port of IPv4 and then the same of IPv6, and ends where that one
    is somebody else's: then another is asked for."""
    said: list[str] = []
    for _ in range(5):
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True)
        assert driver.stdout
        for line in driver.stdout:
            said.append(line)
            if "started successfully on port" in line:
                return driver, "http://127.0.0.1:" + line.rstrip().rstrip(".").rsplit(" ", 1)[1]
        driver.wait()
        driver.stdout.close()
    raise AssertionError("chromedriver does not start: " + "".join(said))


class Browser:
    """One window. `script`: whether pages may run theirs; `dark`: what the page is told that people prefer."""

    def __init__(self, width: int, height: int = 1000, *, script: bool = True, dark: bool = False) -> None:
        self.profile = tempfile.TemporaryDirectory()
        self.driver, self.base = started_driver()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"]
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        preferences = {} if script else {"profile.managed_default_content_settings.javascript": 2}
        options = {"args": arguments, "prefs": preferences}
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "unhandledPromptBehavior": "accept"}}})
        self.session = f"/session/{made['sessionId']}"
        # A phone is narrower than the least window.
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:600]}") from None

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self.ask("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str) -> None:
        self.ask("POST", f"{self.session}/url", {"url": url})

    def url(self) -> str:
        return str(self.ask("GET", f"{self.session}/url"))

    def text(self) -> str:
        return str(self.on("body", "css selector", "GET", "text"))

    def on(self, selector: str, how: str, method: str, what: str) -> Any:
        """Asks an element; where it goes away between the look and the question, its successor."""
        body = {} if method == "POST" else None
        for _ in range(100):
            try:
                return self.ask(method, f"{self.session}/element/{self.find(selector, how)}/{what}", body)
            except AssertionError as error:
                is_between_pages = selector == "body" and "no such element" in str(error)
                if "stale element" not in str(error) and not is_between_pages:
                    raise
                time.sleep(0.05)
        raise AssertionError(f"{selector} never stays")

    def find(self, selector: str, how: str = "css selector") -> str:
        return str(self.ask("POST", f"{self.session}/element", {"using": how, "value": selector})[ELEMENT])

    def count(self, selector: str) -> int:
        return len(self.ask("POST", f"{self.session}/elements", {"using": "css selector", "value": selector}))

    def click(self, selector: str, how: str = "css selector") -> None:
        self.on(selector, how, "POST", "click")

    def write(self, selector: str, text: str) -> None:
        self.ask("POST", f"{self.session}/element/{self.find(selector)}/value", {"text": text})

    def script(self, source: str, *arguments: Any) -> Any:
        return self.ask("POST", f"{self.session}/execute/async", {"script": source, "args": list(arguments)})

    def picture(self, file: Path, most_height: int = 2600) -> None:
        """All of the page, as far down as that."""
        size = self.devtools("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most_height), "scale": 1}
        taken = self.devtools("Page.captureScreenshot",
                              {"format": "png", "clip": clip, "captureBeyondViewport": True})
        file.write_bytes(base64.b64decode(taken["data"]))

    def eventually(self, is_so: Any, seconds: float = 120) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if is_so():
                return True
            time.sleep(0.2)
        return bool(is_so())

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.ask("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.communicate()
            self.profile.cleanup()
