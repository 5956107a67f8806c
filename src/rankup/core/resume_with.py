"""The choice of a resume whose script asks for other settings than its snapshot: ``new`` ones or ``old`` ones."""

from __future__ import annotations

from rankup.errors import RankupError

VARIABLE = "RANKUP_RESUME_WITH"
CHOICES = ("new", "old")


def check_choice(choice: str | None, where: str) -> None:
    """RankupError where ``choice``, made by ``where`` (a flag, an argument), is none of the two."""
    if choice is not None and choice not in CHOICES:
        raise RankupError(
            "bad-resume-with",
            f"{where} must be new (the script's settings) or old (the saved ones), got {choice!r}",
        )
