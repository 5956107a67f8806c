"""What a user chooses between, by a flag, a variable or an argument of ``rankup.Snapshots``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankup.errors import RankupError


@dataclass(frozen=True)
class Choice:
    """``variable`` of the environment holds it; ``values``: each with what it means."""

    variable: str
    code: str  # of the error
    values: Mapping[str, str]

    def check(self, value: str | None, where: str) -> None:
        """RankupError if ``value``, chosen by ``where`` (a flag, an argument), is not one of the values."""
        if value is not None and value not in self.values:
            known = " or ".join(f"{name} ({meaning})" for name, meaning in self.values.items())
            raise RankupError(self.code, f"{where} must be {known}, got {value!r}")


STOP, ACCEPT = "stop", "accept"
#: What to do about values that change in training and are in no snapshot.
LOST = Choice(
    "RANKUP_LOST",
    "bad-lost",
    {STOP: "end when a value would be lost", ACCEPT: "go on without it"},
)
#: For a resume whose script asks for other settings than its snapshot.
RESUME_WITH = Choice(
    "RANKUP_RESUME_WITH",
    "bad-resume-with",
    {"new": "the script's settings", "old": "the saved ones"},
)
