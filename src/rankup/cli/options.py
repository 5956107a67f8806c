"""Options that several commands have, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.cli import console
from rankup.core.resume_with import VARIABLE, check_choice
from rankup.errors import RankupError


def _speak(chosen: bool) -> bool:
    console.answer_in_json(chosen)
    return chosen


JsonOption = Annotated[
    bool, typer.Option("--json", help="print the result as JSON on stdout", callback=_speak)
]
NprocOption = Annotated[
    str, typer.Option(metavar="N|auto", help="processes per node; auto: one per GPU, one without GPUs")
]

ResumeWithOption = Annotated[
    str | None,
    typer.Option(
        metavar="new|old",
        help="if settings changed since the snapshot: use the script's (new) or the saved ones (old)",
    ),
]


def resume_variables(choice: str | None) -> dict[str, str]:
    """The environment that tells the ranks of ``--resume-with``; empty without the option."""
    check_choice(choice, "--resume-with")
    return {} if choice is None else {VARIABLE: choice}


def process_count(text: str) -> int | None:
    """A number of processes per node; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise RankupError(
            "bad-process-count",
            f"--nproc-per-node must be at least 1, or auto; got {text!r}",
            hint="auto starts one process per GPU",
        )
    return int(text)
