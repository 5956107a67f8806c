"""``rankup check-results``: the judgement of `rankup scale` on somebody else's table."""

from __future__ import annotations

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
from rankup.scale.published.judge import Judgement, judge
from rankup.scale.published.table import Table, read_page, read_text
from rankup.scale.results import read_results
from rankup.scale.summary import report

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(name="check-results")
def check_results(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="results.json, a CSV file, or a Markdown page with one table"),
    ],
    as_json: JsonOption = False,
) -> None:
    """Judge a published speed-up: recompute its ratios, and say what was compared with what.

    Reads results.json of `rankup scale`, and one table, in CSV or Markdown, whose columns are named: devices, time or
    throughput, precision, global batch, … What cannot be read is named and counted. Exit code 1 if a comparison is
    wrong or unfair, or a row cannot be read; 2 if the file compares nothing.
    """
    if file.suffix == ".json":
        read_text(file)
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
    page = read_page(file)
    found = judge(page)
    if page.table is None and not found.claims:
        raise RankupError(
            "nothing-to-check",
            f"{file.name} has no table of devices and times, and its text tells no speed-up",
            context=str(file),
            hint="a table needs a column “devices”, “GPUs” or “nodes”, and one “time (s)” or “throughput”",
        )
    blocks = [_shown(page.table, found)] if page.table else []
    if found.claims:
        blocks.append(f"ratios in the text: {found.claims}")
    if found.findings:
        blocks.append("\n".join(text_lines(found.findings, TABLE_WIDTH)))
    table = _as_dict(page.table, found) if page.table else None
    result = {"file": str(file), "table": table, "claims": found.claims}
    _end(result, "\n\n".join(blocks), found.findings, as_json)


def _end(result: dict[str, Any], text: str, findings: list[Finding], as_json: bool) -> None:
    failed = fails(findings)
    if as_json:
        found = [finding.as_dict() for finding in findings]
        console.print_json({**result, "passed": not failed, "findings": found})
    else:
        print(text)
        print(f"\n{'refused' if failed else 'passed'}: {count(findings) or 'nothing found'}")
    raise typer.Exit(1 if failed else 0)


def _shown(table: Table, found: Judgement) -> str:
    """The table as it was understood, with the ratios that its numbers give, and what was left out."""
    head = ["row", "devices", "value", "precision", "batch", "printed", "recomputed", "efficiency"]
    unit = " /s" if table.metric == "rate" else " s"
    rows = [
        [
            one["name"],
            str(one["devices"]),
            f"{one['value']:,.6g}{unit}",
            one["precision"] or "–",
            _or_dash(one["global_batch"], "g"),
            _or_dash(one["printed_speedup"], "g"),
            _or_dash(one["speedup"], ".2f"),
            _or_dash(one["efficiency"], ".0%"),
        ]
        for one in _as_dict(table, found)["rows"]
    ]
    lines = [f"{table.name}:{table.line}"]
    lines += [f"  {line}" for line in aligned([head, *rows], right=range(1, len(head)))]
    lines.append(f"  rows judged: {len(rows)}, rows left out: {len(table.left_out)}")
    if table.unread_columns:
        lines.append(f"  columns left out: {', '.join(table.unread_columns)}")
    return "\n".join(lines)


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _as_dict(table: Table, found: Judgement) -> dict[str, Any]:
    first = {pair.entry.line: pair for pair in reversed(found.pairs)}
    rows = []
    for entry in table.entries:
        pair = first.get(entry.line)
        rows.append(
            {
                "line": entry.line,
                "name": found.names[entry.line],
                "devices": entry.devices,
                "value": entry.value.value,
                "precision": entry.facts.get("precision"),
                "global_batch": entry.facts.get("global_batch"),
                "printed_speedup": entry.speedup.value if entry.speedup else None,
                "printed_efficiency": entry.efficiency.value if entry.efficiency else None,
                "baseline": pair.ratio.baseline if pair else None,
                "speedup": pair.ratio.speedup if pair else None,
                "efficiency": pair.ratio.efficiency if pair else None,
            }
        )
    return {
        "line": table.line,
        "metric": table.metric,
        "rows": rows,
        "left_out": [{"line": row.line, "why": row.why} for row in table.left_out],
        "columns_left_out": list(table.unread_columns),
    }
