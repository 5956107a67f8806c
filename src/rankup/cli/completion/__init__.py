"""Completion scripts for bash, zsh and fish, from what the commands declare.

The scripts hold everything that the declarations say, and look for sites and runs themselves: a Tab starts no Python.
In reading order:

| module | what |
|---|---|
| ``declared`` | what a shell has to know of the commands |
| ``bash``, ``zsh``, ``fish`` | the script for each shell |
"""

from __future__ import annotations

from typing import cast

from rankup.core.registry import lookup

SHELLS = {shell: f"rankup.cli.completion.{shell}:script" for shell in ("bash", "zsh", "fish")}


def script_for(shell: str) -> str:
    """The script; raises ``RankupError`` for a shell that is not known."""
    from rankup.cli.completion.declared import Writer, declared

    write = cast(Writer, lookup("shell", shell, SHELLS))
    return write(list(declared()))
