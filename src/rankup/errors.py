"""The one error that a user of rankup sees.

Raise sites write prose; ``rankup.cli.output.console`` is the one place that draws it. A ``RankupError`` is for what a
user did or what a machine lacks; anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

from typing import Any


class RankupError(Exception):
    """What went wrong, where, why, and how to mend it.

    ``code`` is a short stable name (``script-not-found``) to search for; ``message`` one sentence that says what
    is wrong; ``context`` where it was seen (a file, a variable, a flag with its value); ``hint`` what to do about it.
    ``exit_code`` is 2 for wrong usage (the default) and 1 for a run that failed. ``told_by``: the rank that prints
    the error whole, if another rank's error is raised here, too.
    """

    told_by: int | None = None

    def __init__(
        self, code: str, message: str, *, context: str = "", hint: str = "", exit_code: int = 2
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.context = context
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The error as plain text, one thought per line: message, where, hint."""
        out = [f"{self.message} [{self.code}]"]
        if self.context:
            out.append(f"  where: {self.context}")
        if self.hint:
            out.append(f"  hint:  {self.hint}")
        return out

    @classmethod
    def of_rank(cls, rank: int, said: dict[str, Any]) -> RankupError:
        """The error of another rank, to be raised on this one as well."""
        error = RankupError.from_dict(said)
        error.told_by = rank
        return error

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> RankupError:
        """What ``as_dict`` gave, as an error again: so it crosses from a rank to the command line."""
        return cls(
            said["error"],
            said["message"],
            context=said["context"],
            hint=said["hint"],
            exit_code=said["exit_code"],
        )

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "error": self.code,
            "message": self.message,
            "context": self.context,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


def check_types(call: str, given: dict[str, tuple[Any, tuple[type, ...], str]]) -> None:
    """One error with the right form, and no traceback from far inside.

    ``given``: name → (value, the types that it may have, how it is written). An int does not pass for a bool."""
    for name, (value, types, example) in given.items():
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
            raise RankupError(
                "bad-argument",
                f"{call}({name}={value!r}): {name} must be {wanted}, got {type(value).__name__}",
                hint=f"for example {name}={example}",
            )
