"""The log of a rehearsal: what the stand-ins saw, one JSON line for each event, in the order in which it happened."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def append(path: Path, kind: str, **values: Any) -> None:
    """Add an event. One write, so that lines of several processes do not mix."""
    line = json.dumps({"kind": kind, "time": time.time(), **values}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read(path: Path) -> list[dict[str, Any]]:
    """All events; a line that was cut short by the time limit is left out."""
    if not path.exists():
        return []
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events
