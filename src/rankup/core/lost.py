"""The choice of ``--lost``: what to do about values that change in training and are in no snapshot."""

from __future__ import annotations

from rankup.errors import RankupError

VARIABLE = "RANKUP_LOST"
STOP, ACCEPT = "stop", "accept"
CHOICES = (STOP, ACCEPT)


def check_choice(choice: str | None, where: str) -> None:
    """RankupError where ``choice``, made by ``where`` (a flag, a variable), is none of the two."""
    if choice and choice not in CHOICES:
        raise RankupError(
            "bad-lost",
            f"{where} must be stop (end when a value would be lost) or accept (go on without it), got {choice!r}",
        )
