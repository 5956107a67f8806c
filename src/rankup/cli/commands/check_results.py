"""``rankup check-results``: the judgement of `rankup scale` on somebody else's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.core.columns import aligned
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.findings.finding import Finding
from rankup.findings.text import TABLE_WIDTH, count, text_lines
from rankup.scale.published.curves import Curve
from rankup.scale.published.judge import judge
from rankup.scale.published.pairs import pairs_of
from rankup.scale.published.read import read_published, read_text
from rankup.scale.results import read_results
from rankup.scale.summary import report

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(name="check-results")
def check_results(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="results.json, a CSV file, or a page with tables")
    ],
    as_json: JsonOption = False,
) -> None:
    """Judge a published speed-up: recompute its ratios, and say what was compared with what.

    Reads results.json of `rankup scale`, CSV, and tables in Markdown, HTML, reStructuredText or LaTeX, with what the
    text around them tells. Exit code 1 if a comparison is wrong or unfair, 2 if the file compares nothing.
    """
    text = read_text(file)
    if file.suffix == ".json" and _is_study(text):
        study = read_results(file)
        if not study.configurations:
            raise RankupError(
                "nothing-to-check",
                f"{file.name} is a study without any configuration",
                context=str(file),
                hint="rankup scale --resume DIR goes on with a study",
            )
        made = report(study)
        _end(made.as_dict(), made.text.rstrip(), made.findings, as_json)
    published = read_published(file, text)
    findings = judge(published.curves, published.claims)
    blocks = [_shown(curve) for curve in published.curves]
    if findings:
        blocks.append("\n".join(text_lines(findings, TABLE_WIDTH)))
    tables = [_as_dict(curve) for curve in published.curves]
    _end({"file": str(file), "tables": tables}, "\n\n".join(blocks), findings, as_json)


def _end(result: dict[str, Any], text: str, findings: list[Finding], as_json: bool) -> None:
    failed = fails(findings)
    if as_json:
        found = [finding.as_dict() for finding in findings]
        console.print_json({**result, "passed": not failed, "findings": found})
    else:
        print(text)
        print(f"\n{'refused' if failed else 'passed'}: {count(findings) or 'nothing found'}")
    raise typer.Exit(1 if failed else 0)


def _is_study(text: str) -> bool:
    try:
        given = json.loads(text)
    except ValueError:
        return True  # the error of `read_results` says what is wrong with it
    return isinstance(given, dict) and ("configurations" in given or "version" in given)


def _shown(curve: Curve) -> str:
    """The table as it was understood, with the ratios that its numbers give."""
    head = ["row", "devices", "value", "precision", "batch", "printed", "recomputed", "efficiency"]
    ratios = {id(pair.entry): pair for pair in pairs_of(curve)}
    unit = {"time": " s", "rate": " /s"}.get(curve.metric, "")
    rows = []
    for entry in curve.entries:
        pair = ratios.get(id(entry))
        rows.append(
            [
                entry.name,
                str(entry.devices),
                f"{entry.value.value:,.6g}{unit}" if entry.value else "–",
                entry.precision or "–",
                f"{entry.global_batch:g}" if entry.global_batch else "–",
                f"{entry.speedup.value:g}" if entry.speedup else "–",
                f"{pair.speedup:.2f}" if pair and pair.speedup else "–",
                f"{pair.efficiency:.0%}" if pair and pair.efficiency else "–",
            ]
        )
    return "\n".join([curve.place, *(f"  {line}" for line in aligned([head, *rows], right=range(1, 8)))])


def _as_dict(curve: Curve) -> dict[str, Any]:
    ratios = {id(pair.entry): pair for pair in pairs_of(curve)}
    rows = []
    for entry in curve.entries:
        pair = ratios.get(id(entry))
        rows.append(
            {
                "name": entry.name,
                "devices": entry.devices,
                "value": entry.value.value if entry.value else None,
                "precision": entry.precision,
                "global_batch": entry.global_batch,
                "printed_speedup": entry.speedup.value if entry.speedup else None,
                "printed_efficiency": entry.efficiency.value if entry.efficiency else None,
                "baseline": pair.baseline.name if pair else None,
                "speedup": pair.speedup if pair else None,
                "efficiency": pair.efficiency if pair else None,
            }
        )
    return {"place": curve.place, "metric": curve.metric, "per": curve.per, "rows": rows}
