"""The options of one torch.compile, and what Kiln says of itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from kiln._default_client import client_for
from kiln.client import Mode, Program
from kiln.errors import InvalidArgument, KilnError

log = logging.getLogger("kiln")
#: of torch: Kiln's, and whether launches are captured into CUDA graphs
_MODES: dict[str, tuple[Mode, bool]] = {
    "default": ("default", False), "reduce-overhead": ("default", True), "max-autotune": ("max-autotune", True),
    "max-autotune-no-cudagraphs": ("max-autotune", False)}
_OPTIONS = ("coordinator", "deadline_s", "mode", "now", "portable", "strict", "uncovered", "verify")
#: where parts run that Kiln does not cover
_UNCOVERED = ("eager", "inductor")
_said: set[str] = set()


def configure_logging() -> None:
    """``KILN_LOGS``: "debug", "info", "warning" (default) or "off"; "info" says where each refusal comes from."""
    wanted = os.environ.get("KILN_LOGS", "warning").lower()
    levels = {"debug": logging.DEBUG, "info": logging.INFO, "1": logging.INFO, "off": logging.CRITICAL + 1}
    log.setLevel(levels.get(wanted, logging.WARNING))


class Settings:
    """``mode`` and ``options`` of torch.compile. Raises InvalidArgument."""

    def __init__(self, mode: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        unknown = sorted(set(given) - set(_OPTIONS))
        if unknown:
            raise InvalidArgument(f"no such option: {', '.join(unknown)}; there are {', '.join(_OPTIONS)}")
        mode = given.get("mode") or mode or "default"
        if mode not in _MODES:
            raise InvalidArgument(f"mode is {mode!r}; it can be {', '.join(_MODES)}")
        self.mode, self.captures = _MODES[mode]
        self.coordinator: str | None = given.get("coordinator")
        self.deadline_s = float(given.get("deadline_s", 600.0))
        self.refuses_stale = bool(given.get("strict", False))
        self.verify = bool(given.get("verify", False))
        self.now = bool(given.get("now", False))
        self.portable = bool(given.get("portable", False))
        self.uncovered: str = given.get("uncovered", "eager")
        if self.uncovered not in _UNCOVERED:
            raise InvalidArgument(f"uncovered is {self.uncovered!r}; it can be {', '.join(_UNCOVERED)}")
        self.takes_one = False  # sizes of 1 where torch would guard against them
        self.strict = os.environ.get("KILN_STRICT", "") not in ("", "0")  # our own mistakes are raised: for tests
        configure_logging()

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Settings:
        """Settings with these members: how they are unpickled."""
        settings = cls.__new__(cls)
        vars(settings).update(members)
        return settings

    def compile(self, model_json: bytes, target: str, gpu: int = 0) -> Program:
        """The program of a graph, loaded on ``gpu`` where its target is one. Errors as Client.compile."""
        return client_for(self.coordinator, gpu).compile(
            model_json, mode=self.mode, target=target, deadline_s=self.deadline_s, strict=self.refuses_stale,
            verify=self.verify, now=self.now, on_message=log.info)

    def add_bundle(self, bundle: bytes, signer: str, gpu: int) -> None:
        """Makes compile() answer with a program that came with a cached graph. ``signer``: whose signature it says that
        it has, which counts where this process knows no coordinator's key."""
        client = client_for(self.coordinator, gpu)
        try:
            try:
                client.add_bundle(bundle)
            except InvalidArgument:
                client.add_bundle(bundle, signer=signer)
        except KilnError as error:
            self.say_once(f"a program that came with a cached graph is not used: {error}", "")

    @staticmethod
    def say_once(sentence: str, place: str) -> None:
        """A warning, once a process for each sentence."""
        if sentence not in _said:
            _said.add(sentence)
            log.warning("%s", sentence.splitlines()[0][:400])
        if place:
            log.info("%s (%s)", sentence.splitlines()[0][:400], place)
