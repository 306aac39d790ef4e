"""What goes wrong, each in one line: what, where, and the remedy."""

from __future__ import annotations

__all__ = ["Error", "UsageError"]


class Error(RuntimeError):
    """A request was right and could not be carried out."""

    #: ``"failure"``, or ``"usage"`` of a :class:`UsageError`.
    kind = "failure"


class UsageError(Error, ValueError):
    """A request was wrong: an option, a prompt, a combination."""

    kind = "usage"
