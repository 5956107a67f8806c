"""``rankup completion``: the completion script for a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.cli.completion import SHELLS, script_for

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("completion")
def completion(
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS))],
) -> None:
    """Print the completion script for a shell. Save it to a file: a Tab then starts no Python.

    It completes commands, options, choices, files, names of sites, and names and ids of runs below ./runs. Print it
    again after an update of rankup.
    """
    print(script_for(shell), end="")
