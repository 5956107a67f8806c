"""What centres ask for before they open their large partitions: ``proposals.toml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.core.registry import target_of
from rankup.core.toml_file import read_toml


def asked_by(centre: str) -> dict[str, Any]:
    """Raises ``unknown-centre``."""
    table = read_toml(Path(__file__).with_name("proposals.toml"), "table of proposals")
    target_of("centre", centre, dict.fromkeys(table, ""))
    asked: dict[str, Any] = table[centre]
    return asked


def check_centre(name: str) -> None:
    """Raises ``unknown-centre``."""
    asked_by(name)
