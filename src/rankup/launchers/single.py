"""One process: the command itself. No torchrun, so no torch is needed and a debugger works."""

from __future__ import annotations

from rankup.launchers.base import Launch


def tokens(launch: Launch) -> list[str]:
    return list(launch.command)
