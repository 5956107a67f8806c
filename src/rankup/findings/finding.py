"""A finding, as data: what a check, a diagnosis or a refused comparison says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Severity(str, Enum):
    """Most severe first. A note is information: it never changes an exit code."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Confidence(str, Enum):
    SURE = "sure"
    LIKELY = "likely"


@dataclass(frozen=True)
class Finding:
    """One thing that was found. Severity says how bad it is if true, confidence whether it is true.

    ``code`` is a short stable name to search for and to ignore; ``place`` a file with a line, a flag, a run;
    ``why`` what follows from it; ``fix`` what to do.
    """

    code: str
    severity: Severity
    message: str
    place: str = ""
    why: str = ""
    fix: str = ""
    confidence: Confidence = Confidence.SURE

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with plain words in place of the enumerations."""
        return {**asdict(self), "severity": self.severity.value, "confidence": self.confidence.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Finding:
        """The inverse of ``as_dict``: so a finding crosses from one node to another."""
        severity, confidence = Severity(values["severity"]), Confidence(values["confidence"])
        return cls(**{**values, "severity": severity, "confidence": confidence})


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Most severe first, then what is sure; otherwise as they came, and each once."""
    severities, confidences = list(Severity), list(Confidence)
    return sorted(
        dict.fromkeys(findings),
        key=lambda f: (severities.index(f.severity), confidences.index(f.confidence)),
    )
