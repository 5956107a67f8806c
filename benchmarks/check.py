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
    expected = read_labels()
    found = all_found()
    hits = expected & {(file, code) for file, code, _ in found}
    alarms = sorted(
        {(file, code, severity) for file, code, severity in found if (file, code) not in expected}
    )
    missed = sorted(expected - hits)
    files = {file.relative_to(CORPUS).as_posix() for file in CORPUS.glob("*/*") if file.suffix != ".toml"}
    seconds = [speed(100 if quick else SCRIPTS) for _ in range(1 if quick else 3)]
    return Result(
        "check",
        "`rankup check` on its corpus",
        "share, count or seconds",
        {
            "cores": cores(),
            "files": len(files),
            "files without a mistake": len(files - {file for file, _ in expected}),
            "mistakes": len(expected),
        },
        {
            "precision": [len(hits) / max(1, len(hits) + len(alarms))],
            "recall": [len(hits) / max(1, len(expected))],
            "false errors": [float(sum(severity is Severity.ERROR for _, _, severity in alarms))],
            "seconds": seconds,
        },
        [
            Claim("precision", "precision", None, 0.95, at_most=False),
            Claim("recall", "recall", None, 0.95, at_most=False),
            Claim("false alarms that are errors", "false errors", None, 0, at_most=True),
            Claim(f"{SCRIPTS} job scripts with their programs, seconds", "seconds", None, 10, at_most=True),
        ],
        [
            *(f"false alarm: {file}: {code}" for file, code, _ in alarms),
            *(f"missed: {file}: {code}" for file, code in missed),
        ],
    )


def read_labels() -> set[tuple[str, str]]:
    """File of the corpus and code of each mistake in it, of errors and warnings."""
    labels: dict[str, Any] = {}
    for path in sorted(CORPUS.glob("labels*.toml")):
        labels |= read_toml(path, "labels")
    return {(file, code) for file, codes in labels.items() for code in codes}


def all_found() -> set[tuple[str, str, Severity]]:
    """File, code and severity of each error and warning, folder by folder."""
    found = set()
    for folder in sorted(path for path in CORPUS.iterdir() if path.is_dir()):
        for diagnostic in check_paths([folder], Selection(), None).diagnostics:
            if diagnostic.finding.severity is not Severity.NOTE:
                file = Path(diagnostic.place.path).relative_to(CORPUS).as_posix()
                found.add((file, diagnostic.rule.code, diagnostic.finding.severity))
    return found


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
