"""Options that several commands have, said once."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.cli import console
from rankup.core.resume_with import VARIABLE, check_choice
from rankup.errors import RankupError


def _speak(chosen: bool) -> bool:
    console.answer_in_json(chosen)
    return chosen


JsonOption = Annotated[bool, typer.Option("--json", help="answer in JSON on stdout", callback=_speak)]
NprocOption = Annotated[str, typer.Option(metavar="N|auto", help="auto: one per GPU, else 1")]

ResumeWithOption = Annotated[
    str | None,
    typer.Option(
        metavar="new|old", help="where settings differ from the snapshot's: the script's, or the saved ones"
    ),
]


def resume_variables(choice: str | None) -> dict[str, str]:
    """The environment that tells the ranks of ``--resume-with``; empty where it was not given."""
    check_choice(choice, "--resume-with")
    return {} if choice is None else {VARIABLE: choice}


def process_count(text: str) -> int | None:
    """A number of processes per node; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise RankupError(
            "bad-process-count", f"--nproc-per-node is {text!r}", hint="a number from 1, or auto: one per GPU"
        )
    return int(text)
