"""Options that several commands have, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.cli.output import console
from rankup.core.resume_with import VARIABLE


def _speak(chosen: bool) -> bool:
    console.answer_in_json(chosen)
    return chosen


JsonOption = Annotated[
    bool, typer.Option("--json", help="print the result as JSON on stdout", callback=_speak)
]


def resume_variables(choice: str | None) -> dict[str, str]:
    """The environment that tells the ranks of ``--resume-with``; empty without the option."""
    return {} if choice is None else {VARIABLE: choice}
