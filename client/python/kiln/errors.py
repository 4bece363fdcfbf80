"""The exceptions of Kiln: one for each kind of error, by what the caller does next."""

from __future__ import annotations


class KilnError(Exception):
    """Base of them all. ``str(error)`` is one sentence that says what to do."""

    code = 0


class InvalidArgument(KilnError, ValueError):
    """The input is wrong: a count, dtype, size or option."""

    code = 1


class Unsupported(KilnError):
    """An operation that Kiln does not cover, or a target this machine cannot run."""

    code = 2


class NotFound(KilnError, LookupError):
    """No such file; or, with ``cached_only``, no cache has the program."""

    code = 3


class Overloaded(KilnError):
    """The service is busy for longer than the deadline: try again later."""

    code = 4


class Unavailable(KilnError, ConnectionError):
    """No service answers and no fallback is allowed, or it has no worker for the target."""

    code = 5


class DeadlineExceeded(KilnError, TimeoutError):
    """The deadline passed, or the call was cancelled."""

    code = 6


class Corruption(KilnError):
    """The program is not what was signed."""

    code = 7


class NotPermitted(KilnError, PermissionError):
    """The key may not ask this, or somebody else signed the program."""

    code = 8


class InternalError(KilnError):
    """A bug in Kiln."""

    code = 9


_BY_CODE: dict[int, type[KilnError]] = {
    kind.code: kind
    for kind in (InvalidArgument, Unsupported, NotFound, Overloaded, Unavailable, DeadlineExceeded,
                 Corruption, NotPermitted, InternalError)
}


def error_of(code: int, message: str) -> KilnError:
    """The exception that stands for a ``kiln_code``."""
    return _BY_CODE.get(code, InternalError)(message)
