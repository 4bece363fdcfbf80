"""What ``import torch`` calls at its end where this package is installed (entry point ``torch.backends``).

Nothing happens unless ``KILN_COORDINATOR`` is set. ``KILN_INDUCTOR`` says what of Inductor is shared:
"off", or some of "gemm", "autotune", "fx" and "aot", with commas between; default: all.
"""

from __future__ import annotations


def autoload() -> None:
    """Prepares Inductor's remote caches. Raises nothing: an exception here would end ``import torch``."""
    try:
        import os

        coordinator = os.environ.get("KILN_COORDINATOR")
        wanted = os.environ.get("KILN_INDUCTOR", "")
        if not coordinator or wanted.lower() in ("off", "0"):
            return
        from kiln import _inductor

        _inductor.install(coordinator, _inductor.parts_of(wanted))
    except Exception:
        return
