"""What ``import torch`` calls at its end where this package is installed (entry point ``torch.backends``).

accelerate takes the backend "kiln". No more happens unless ``KILN_COORDINATOR`` is set. ``KILN_INDUCTOR`` says what of
Inductor is shared: "off", or some of "gemm", "autotune", "fx" and "aot", with commas between; default: all.
"""

from __future__ import annotations


def autoload() -> None:
    """Prepares accelerate and Inductor's remote caches. Raises nothing: that would end ``import torch``."""
    try:
        import os

        from kiln import _accelerate

        _accelerate.install()
        coordinator = os.environ.get("KILN_COORDINATOR")
        wanted = os.environ.get("KILN_INDUCTOR", "")
        if not coordinator or wanted.lower() in ("off", "0"):
            return
        from kiln import _inductor

        _inductor.install(coordinator, _inductor.parts_of(wanted))
    except Exception:
        return
