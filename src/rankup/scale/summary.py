"""What a study leaves behind: ``table.txt`` for people, ``results.json`` for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder, write_atomic
from rankup.findings.engine import fails
from rankup.findings.text import TABLE_WIDTH, text_lines
from rankup.scale.comparability import judge
from rankup.scale.machine import Machine
from rankup.scale.rows import compare
from rankup.scale.study import Study
from rankup.scale.table import heading, ratio_table, run_table


@dataclass(frozen=True)
class StudyReport:
    """``text`` is what to show, ``results`` what to keep; ``comparable`` whether there are ratios."""

    comparable: bool
    text: str
    results: dict[str, Any]


def report(study: Study, machine: Machine) -> StudyReport:
    """Judge and compare what was measured on ``machine``."""
    runs = study.runs
    findings = [study.failure] if study.failure else []
    findings += judge(runs, machine) if runs else []
    comparable = not fails(findings)
    rows = compare(runs) if comparable else []
    blocks = (
        [heading(runs[0]) + "\n\n" + ratio_table(rows)] if comparable else [run_table(runs)] if runs else []
    )
    if findings:
        blocks.append("\n".join(text_lines(findings, TABLE_WIDTH)))
    if not comparable:
        blocks.append("not comparable: no speed-up and no efficiency")
    results = {
        "comparable": comparable,
        "rows": [row.as_dict() for row in rows],
        "findings": [finding.as_dict() for finding in findings],
        "runs": [
            {
                "run": str(run.path),
                "nproc_per_node": run.turn.processes,
                "repeat": run.turn.repeat,
                "steps": run.steps,
                **run.summary,
            }
            for run in runs
        ],
        "machine": {**asdict(machine), "torch": runs[0].summary["torch"] if runs else None},
    }
    return StudyReport(comparable, "\n\n".join(blocks) + "\n", results)


def write(report: StudyReport, folder: Path) -> Path:
    """Keep both files in ``folder``, for their owner's eyes like the runs beside it; the path of the results."""
    make_folder(folder, mode=0o700, purpose="study directory")
    write_atomic(folder / "table.txt", report.text, mode=0o600)
    path = folder / "results.json"
    write_atomic(path, json.dumps(report.results, indent=2) + "\n", mode=0o600)
    return path
