"""Findings: what a check, a diagnosis or a refused comparison says, as data; each output draws it its own way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Confidence(str, Enum):
    SURE = "sure"
    LIKELY = "likely"


@dataclass(frozen=True)
class Finding:
    """One thing found. ``place``: a file with a line, a variable, a run. Severity and confidence are two things."""

    code: str
    severity: Severity
    message: str
    place: str = ""
    why: str = ""
    fix: str = ""
    confidence: Confidence = Confidence.SURE

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
