"""`rankup check` on the labelled corpus of tests/check/corpus: precision, recall, false errors; and its speed."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.contest import Claim, Result
from benchmarks.machine import cores
from rankup.check.paths import check_paths
from rankup.check.selection import Selection
from rankup.core.toml_file import read_toml
from rankup.findings.finding import Severity

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "check" / "corpus"
SCRIPTS = 1000


def run(quick: bool) -> Result:
    labels = read_labels()
    hits, alarms, errors, missed = 0, [], [], []
    for name, expected in labels.items():
        found = {
            (d.rule.code, d.finding.severity)
            for d in check_paths([CORPUS / name], Selection(), None).diagnostics
            if d.finding.severity is not Severity.NOTE
        }
        codes = {code for code, _ in found}
        hits += len(codes & expected)
        alarms += [f"{name}: {code}" for code in sorted(codes - expected)]
        errors += [
            f"{name}: {code}"
            for code, severity in sorted(found)
            if severity is Severity.ERROR and code not in expected
        ]
        missed += [f"{name}: {code}" for code in sorted(expected - codes)]
    labelled = sum(len(expected) for expected in labels.values())
    seconds = [speed(100 if quick else SCRIPTS) for _ in range(1 if quick else 3)]
    correct = sum(not expected for expected in labels.values())
    return Result(
        "check",
        "`rankup check` on its corpus",
        "share, count or seconds",
        {"cores": cores(), "pairs": len(labels), "correct pairs": correct, "labelled mistakes": labelled},
        {
            "precision": [hits / max(1, hits + len(alarms))],
            "recall": [hits / max(1, labelled)],
            "false errors": [float(len(errors))],
            "seconds": seconds,
        },
        [
            Claim("precision", "precision", None, 0.95),
            Claim("recall", "recall", None, 0.95),
            Claim("false alarms that are errors", "false errors", None, 0, at_most=True),
            Claim(f"{SCRIPTS} job scripts, seconds", "seconds", None, 10, at_most=True),
        ],
        [*(f"false alarm: {line}" for line in alarms), *(f"missed: {line}" for line in missed)],
    )


def read_labels() -> dict[str, set[str]]:
    """Folder of the corpus → the codes that are expected there, of errors and warnings."""
    labels: dict[str, Any] = {}
    for path in sorted(CORPUS.glob("labels*.toml")):
        labels |= read_toml(path, "labels")
    return {name: set(codes) for name, codes in labels.items()}


def speed(count: int) -> float:
    """Seconds to check ``count`` job scripts that all differ, each with its program."""
    pairs = sorted(path for path in CORPUS.iterdir() if path.is_dir())
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            source = pairs[number % len(pairs)]
            target = Path(folder) / f"{number:04}"
            target.mkdir()
            for path in source.iterdir():
                if path.is_file():
                    (target / path.name).write_text(f"{path.read_text()}\n# {number}\n")
        began = time.perf_counter()
        check_paths([Path(folder)], Selection(), None)
        return time.perf_counter() - began
