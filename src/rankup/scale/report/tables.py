"""The tables of a report, for a page, a spreadsheet, a README and a paper."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankup.core.units import duration
from rankup.scale.report.content import Content
from rankup.scale.report.rows import ReportRow, Spread, device_word, hour_word
from rankup.scale.report.run_records import HostSamples, RunRecords
from rankup.scale.report.text import percent, plain, short
from rankup.scale.results import PARTS

_NOTHING = "–"
_SAID_ONCE = ("Outcome", "Strategy", "Precision", "Processes")
Cell = tuple[str, "float | str"]  # what is shown, what is sorted and exported: NaN if unknown


@dataclass(frozen=True)
class Column:
    """``unit`` is that of the exported number; what is shown has its own."""

    title: str
    unit: str = ""
    text: bool = False

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """RFC 4180, numbers at full precision; text that a spreadsheet would run as a formula gets a quote first."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows([[_exported(value) for _, value in row] for row in self.rows])
        return out.getvalue()

    def markdown(self) -> str:
        """A table of GitHub's Markdown."""
        lines = [[_markdown(column.title) for column in self.columns]]
        lines.append(["---" if column.text else "---:" for column in self.columns])
        lines += [[_markdown(shown) for shown, _ in row] for row in self.rows]
        return f"**{_markdown(self.title)}.** {_markdown(self.caption)}\n\n" + "".join(
            f"| {' | '.join(line)} |\n" for line in lines
        )

    def latex(self) -> str:
        """A ``table`` float; its preamble requires ``booktabs``."""
        kinds = "".join("l" if column.text else "r" for column in self.columns)
        body = [[latex_text(column.title) for column in self.columns]]
        body += [[latex_text(shown) for shown, _ in row] for row in self.rows]
        head, *rest = [" & ".join(line) + r" \\" for line in body]
        return "\n".join(
            [
                "% \\usepackage{booktabs}",
                r"\begin{table}[ht]",
                r"  \centering",
                rf"  \caption{{{latex_text(self.title)}. {latex_text(self.caption)}}}",
                rf"  \label{{tab:{self.name}}}",
                rf"  \begin{{tabular}}{{{kinds}}}",
                r"    \toprule",
                f"    {head}",
                r"    \midrule",
                *(f"    {line}" for line in rest),
                r"    \bottomrule",
                r"  \end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def aligned(self) -> list[str]:
        """Lines for a font whose letters are equally wide."""
        lines = [
            [column.title for column in self.columns],
            *([shown for shown, _ in row] for row in self.rows),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = [column.text for column in self.columns]
        return [
            "  ".join(
                word.ljust(width) if text else word.rjust(width)
                for word, width, text in zip(line, widths, left, strict=True)
            )
            for line in lines
        ]


def all_tables(content: Content) -> list[Table]:
    """Those that the content has numbers for, in the order of the page."""
    rows = content.rows
    tables = [
        _comparison(rows) if rows else None,
        _parts([row for row in rows if sum(row.breakdown.values()) > 0]),
        _runs(content.runs) if content.runs else None,
        _use([(run.name, host) for run in content.runs for host in run.hosts]),
    ]
    return [table for table in tables if table is not None]


def _comparison(rows: Sequence[ReportRow]) -> Table:
    compared = any(row.speedup for row in rows)
    unfair = any(row.unfair for row in rows)
    columns = [
        Column("Configuration", text=True),
        Column(device_word(rows)),
        Column("Repeats"),
        Column("Training time", "s"),
        Column(rows[0].spread, text=True),
        Column("Samples/s", "1/s"),
        *([Column("Speed-up"), Column("Efficiency")] if compared else []),
        *([Column("Comparison", text=True)] if unfair else []),
        Column(hour_word(rows)[:1].upper() + hour_word(rows)[1:]),
        *([Column("Accuracy")] if any(row.accuracy for row in rows) else []),
    ]
    body = []
    for row in rows:
        cells: list[Cell] = [
            (row.name, row.name),
            _whole(row.devices),
            _whole(row.repeats),
            (duration(row.seconds.median), row.seconds.median),
            _between(row.seconds) if row.repeats > 1 else (_NOTHING, ""),
            (short(row.rate.median), row.rate.median),
        ]
        if compared:
            mark = " (unfair)" if row.unfair else ""
            cells += [
                _of(row.speedup, lambda value, mark=mark: f"{value:.2f}{mark}"),
                _of(row.efficiency, lambda value, mark=mark: percent(value) + mark),
            ]
            cells += [(mark.strip(" ()") or _NOTHING, mark.strip(" ()"))] if unfair else []
        cells.append((short(row.device_hours), row.device_hours))
        if any(one.accuracy for one in rows):
            cells.append(_of(row.accuracy, lambda share: f"{100 * share:.2f} %"))
        body.append(cells)
    ratios = (
        "" if compared else " There are no ratios: nobody compared these runs, or the comparison was refused."
    )
    if unfair:
        ratios = " Unfair: this ratio compares different things, and the study refuses it; see the findings."
    return Table(
        "comparison",
        "Configurations",
        f"Medians over the repeats, with {rows[0].spread}. Training time is without start-up and evaluation; cost is "
        f"devices times training time.{ratios}",
        columns,
        body,
    )


def _parts(rows: Sequence[ReportRow]) -> Table | None:
    if not rows:
        return None
    body: list[Sequence[Cell]] = []
    for row in rows:
        total = sum(row.breakdown.values())
        shares = [row.breakdown.get(part, 0.0) for part in PARTS]
        body.append(
            [
                (row.name, row.name),
                (f"{short(1000 * total)} ms", total),
                *((f"{short(1000 * one)} ms, {percent(one / total)}", one) for one in shares),
            ]
        )
    return Table(
        "breakdown",
        "Parts of a step",
        "Communication is what computing does not hide.",
        [
            Column("Configuration", text=True),
            Column("Step", "s"),
            *(Column(part.capitalize(), "s") for part in PARTS),
        ],
        body,
    )


def _runs(runs: Sequence[RunRecords]) -> Table:
    body: list[Sequence[Cell]] = []
    for run in runs:
        facts = [plain(run.summary.get(key, "")) for key in ("strategy", "precision")]
        accuracy = run.last("test_accuracy", "accuracy")
        body.append(
            [
                (run.name, run.name),
                (run.outcome or _NOTHING, run.outcome),
                *((fact or _NOTHING, fact) for fact in facts),
                _known(run.summary.get("world_size"), lambda count: f"{count:,.0f}"),
                _known(run.seconds if run.seconds > 0 else math.nan, duration),
                _known(run.samples if run.samples > 0 else math.nan, lambda count: f"{count:,.0f}"),
                _known(run.rate, short),
                _known(run.last("loss"), short),
                _known(run.last("test_loss"), short),
                _known(accuracy, lambda share: f"{100 * share:.2f} %"),
                _known(run.waited, percent),
            ]
        )
    columns = [
        Column("Run", text=True),
        Column("Outcome", text=True),
        Column("Strategy", text=True),
        Column("Precision", text=True),
        Column("Processes"),
        Column("Training time", "s"),
        Column("Samples"),
        Column("Samples/s", "1/s"),
        Column("Last loss"),
        Column("Last test loss"),
        Column("Last accuracy"),
        Column("Waited for data"),
    ]
    told = [i for i, _ in enumerate(columns) if i == 0 or any(row[i][0] != _NOTHING for row in body)]
    # What all runs have in common is said once, so that the table fits more screens.
    same = [
        i
        for i in told
        if columns[i].title in _SAID_ONCE and len({row[i][0] for row in body}) == 1 < len(body)
    ]
    common = [f"{columns[i].title.lower()} {body[0][i][0]}" for i in same]
    kept = [i for i in told if i not in same]
    return Table(
        "runs",
        "Runs",
        "From the records of each run. Accuracy is on the test data if the run tells it."
        + (f" All runs: {', '.join(common)}." if common else ""),
        [columns[i] for i in kept],
        [[row[i] for i in kept] for row in body],
    )


def _use(hosts: Sequence[tuple[str, HostSamples]]) -> Table | None:
    if not hosts:
        return None
    gib = 2.0**30
    body: list[Sequence[Cell]] = []
    for name, host in hosts:
        seconds = np.diff(host.seconds, prepend=0.0)
        body.append(
            [
                (name, name),
                (host.host, host.host),
                _known(_mean(host.cpu), lambda value: f"{value:.0f} %"),
                _known(_most(host.memory) / gib, lambda value: f"{value:.1f} GiB"),
                _known(_mean(host.gpu), lambda value: f"{value:.0f} %"),
                _known(_most(host.gpu_memory) / gib, lambda value: f"{value:.1f} GiB"),
                _known(_most(host.temperature), lambda value: f"{value:.0f} °C"),
                _known(_sum(host.power * seconds) / 3.6e6, lambda value: f"{value:.2f} kWh"),
                _known(_sum(host.network) / gib, lambda value: f"{value:.2f} GiB"),
            ]
        )
    columns = [
        Column("Run", text=True),
        Column("Node", text=True),
        Column("Mean CPU", "%"),
        Column("Most memory", "GiB"),
        Column("Mean GPU", "%"),
        Column("Most memory of a GPU", "GiB"),
        Column("Hottest GPU", "°C"),
        Column("Energy of GPUs", "kWh"),
        Column("Network", "GiB"),
    ]
    kept = [i for i, column in enumerate(columns) if any(row[i][0] != _NOTHING for row in body)]
    return Table(
        "utilisation",
        "Utilisation",
        "By the samples of each node, from the start of the job to its end, evaluation included.",
        [columns[i] for i in kept],
        [[row[i] for i in kept] for row in body],
    )


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def _most(values: np.ndarray) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan


def _sum(values: np.ndarray) -> float:
    return float(np.nansum(values)) if np.isfinite(values).any() else math.nan


def _whole(value: int) -> Cell:
    return f"{value:,}", float(value)


def _known(value: object, show: object) -> Cell:
    number = float(value) if isinstance(value, (int, float)) else math.nan
    return (show(number), number) if math.isfinite(number) and callable(show) else (_NOTHING, math.nan)


def _of(spread: Spread | None, show: object) -> Cell:
    return _known(spread.median if spread else None, show)


def _between(spread: Spread) -> Cell:
    text = f"{duration(spread.low)} – {duration(spread.high)}"
    return text, text


def _exported(value: float | str) -> str:
    if isinstance(value, str):
        return "'" + value if value.startswith(("=", "+", "-", "@")) else value
    if not math.isfinite(value):
        return ""
    return f"{value:.0f}" if value.is_integer() else repr(value)


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text).replace("&", "&amp;")


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "–": "--", "×": r"$\times$", "…": r"\dots{}", "-": "{-}",
}  # fmt: skip


def latex_text(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in latex_letters(text))


def latex_letters(text: str) -> str:
    """``text`` with the numbers of those letters at which pdflatex stops: Latin ones and quotes are all that it has."""
    return "".join(char if char < "\u0180" or char in "–—‘’“”…" else f"U+{ord(char):04X}" for char in text)
