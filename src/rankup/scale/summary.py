"""What a study leaves behind: ``table.txt`` for people, ``results.json`` for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder, write_atomic
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.findings.finding import Finding, in_order
from rankup.findings.text import TABLE_WIDTH, finding_lines
from rankup.scale.comparability import failures, judge, refused
from rankup.scale.families import Family, families
from rankup.scale.parts import largest_loss, limits, parts_table
from rankup.scale.results import StudyResults, write_results
from rankup.scale.rows import Ratio, Row, counted, enough, ratio, rows
from rankup.scale.table import heading, notes, ratio_table, time_table


@dataclass(frozen=True)
class StudyReport:
    """``text`` is what to show; ``comparable`` whether no comparison was refused."""

    study: StudyResults
    rows: list[Row]
    ratios: list[Ratio]
    findings: list[Finding]
    text: str

    @property
    def comparable(self) -> bool:
        return not fails(self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {**self.study.as_dict(), **self.conclusions()}

    def conclusions(self) -> dict[str, Any]:
        """What follows from the study, for programs that do not judge themselves."""
        return {
            "comparable": self.comparable,
            "rows": [row.as_dict() for row in self.rows],
            "ratios": [one.as_dict() for one in self.ratios],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def report(study: StudyResults, baseline: str = "", *, allow_unfair: bool = False) -> StudyReport:
    """Judge and compare a study. Ratios that are refused are left out, or marked if ``allow_unfair``.

    Raises ``unknown-baseline``.
    """
    found = families(study, baseline)
    findings = in_order([*judge(study, found), *limits(study)])
    by_family = [_ratios(family, allow_unfair) for family in found]
    table = rows(study)
    ratios = [one for group in by_family for one in group]
    blocks = [heading(study), time_table(table)] if table else []
    blocks += [ratio_table(group) for group in by_family if group]
    if parts := parts_table(study):
        loss = largest_loss(study)
        blocks.append(f"{parts}\n  {loss}" if loss else parts)
    if table:
        blocks.append("\n".join(f"  {note}" for note in notes(study, table, ratios)))
    if findings:
        blocks.append("\n".join(_said(findings, failures(study))))
    if fails(findings) and not ratios:
        blocks.append("not comparable: no speed-up and no efficiency")
    return StudyReport(study, table, ratios, findings, "\n\n".join(blocks) + "\n")


def _said(findings: Sequence[Finding], failed: Sequence[Finding]) -> list[str]:
    """The lines of all findings. "error" stands before runs that failed alone: where a ratio is forbidden, the table
    still has all that was measured."""
    lines = []
    for finding in findings:
        forbids = fails([finding]) and finding not in failed
        head, *rest = finding_lines(finding, TABLE_WIDTH)
        lines += [f"{'not comparable' if forbids else finding.severity.value}: {head}", *rest]
    return lines


def _ratios(family: Family, allow_unfair: bool) -> list[Ratio]:
    made = []
    for one in family.others:
        if not counted(family, one):
            continue
        unfair = refused(family, one) or not enough(family, one)
        if allow_unfair or not unfair:
            made.append(ratio(family, one, unfair=unfair))
    return made


def write(report: StudyReport, folder: Path) -> Path:
    """Keep both files in ``folder``, for their owner's eyes like the runs beside it; the path of the results."""
    make_folder(folder, mode=0o700, purpose="study directory")
    path = folder / "results.json"
    try:
        write_atomic(folder / "table.txt", report.text, mode=0o600)
        write_results(report.study, path, **report.conclusions())
    except OSError as error:
        raise RankupError(
            "unwritable-results",
            f"cannot write the results: {error.strerror}",
            context=str(folder),
            hint=f"make room there; rankup scale --resume {folder} writes them from the records",
            exit_code=1,
        ) from error
    return path
