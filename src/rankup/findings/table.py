"""Findings whose words and limits stand in a TOML file: a table for each code.

Its text is a Finding's fields, its numbers are the limits from which on the finding is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankup.core.toml_file import read_toml
from rankup.findings.finding import Confidence, Finding, Severity

_WORDS = ("message", "why", "fix")
_GRADES = {"severity": Severity, "confidence": Confidence}


def read_limits(path: Path) -> dict[str, Mapping[str, float]]:
    """The numbers in each table of ``path``."""
    return {code: _numbers(values) for code, values in read_toml(path, "table").items()}


class FindingTable:
    """The table in ``path``. Raises ``ValueError`` for a row that is no finding.

    ``limits`` are the numbers of each row.
    """

    def __init__(self, path: Path) -> None:
        self.limits = read_limits(path)
        self._rows = {code: _row(code, values) for code, values in read_toml(path, "table").items()}

    def __call__(self, code: str, place: str = "", **values: Any) -> Finding:
        """The finding of ``code`` at ``place``, else the table's, with ``values`` in the braces of its words.

        A field of a finding among them (``why``, ``confidence``) is taken as it is, in place of the table's, unless it
        is empty.
        """
        row = self._rows[code]
        place = place or row.place.format(**values)
        own = {name: values[name] for name in (*_WORDS, *_GRADES) if values.get(name)}
        words = {name: getattr(row, name).format(place=place, **values) for name in _WORDS if name not in own}
        return replace(row, place=place, **words, **own)


def _row(code: str, values: dict[str, Any]) -> Finding:
    values = {name: value for name, value in values.items() if name not in _numbers(values)}
    try:
        grades: dict[str, Any] = {
            name: grade(values[name]) for name, grade in _GRADES.items() if name in values
        }
        return Finding(code, **{"message": "", **values, **grades})
    except (TypeError, ValueError) as error:
        raise ValueError(f"[{code}] is not a finding: {error}") from error


def _numbers(values: Mapping[str, Any]) -> Mapping[str, float]:
    return {name: value for name, value in values.items() if type(value) in (int, float)}
