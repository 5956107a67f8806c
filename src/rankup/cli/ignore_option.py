"""The option ``--ignore`` of the commands that check a job before they submit or print it."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.core.registry import target_of
from rankup.resolve.advice import ADVICE
from rankup.schedulers.queue_limits import CODE

IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="CODE", help="leave out findings with this code; may be repeated"),
]


def ignored_codes(codes: list[str] | None) -> tuple[str, ...]:
    """The codes of ``--ignore``. Raises ``RankupError`` for one that no finding about a job or its program has."""
    for code in codes or ():
        if code.upper().startswith("RK"):
            from rankup.check.selection import check_codes

            check_codes([code], where="--ignore")
        else:
            target_of("finding", code, dict.fromkeys([*ADVICE, CODE], ""))
    return tuple(codes or ())
