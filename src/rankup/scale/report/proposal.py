"""The scalability report that a centre asks for, from a study that was really run; what is missing is listed.

``centres`` says what each centre asks for. Nothing is filled in that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankup.core.files import make_folder
from rankup.core.units import duration
from rankup.errors import RankupError
from rankup.scale.report.centres import asked_by
from rankup.scale.report.content import Content, Group
from rankup.scale.report.figures.all_pictures import all_pictures
from rankup.scale.report.figures.pages import Block, fixed_lines, pages
from rankup.scale.report.figures.picture import Picture
from rankup.scale.report.rows import ReportRow, device_word
from rankup.scale.report.tables import Cell, Column, Table, latex_letters, latex_text
from rankup.scale.report.text import percent, plural, short

_FIGURES = ("time", "speed-up", "efficiency", "gpu-utilization", "gpu-memory")


@dataclass(frozen=True)
class Proposal:
    """``missing`` are sentences: what the centre asks for and the study does not show, or shows too little of."""

    title: str
    source: str
    missing: tuple[str, ...]
    facts: Sequence[tuple[str, str]]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    script: str


def proposal(content: Content, folder: Path, centre: str) -> Proposal:
    """The report for ``centre`` of the study whose runs lie in ``folder``."""
    asked = asked_by(centre)
    script = _script(content, folder)
    use = _use(content)
    page = f"{asked['page']}, read {asked['seen']}" if "page" in asked else ""
    return Proposal(
        content.title,
        f"Asked for by {asked['title']}" + (f" ({page})." if page else "."),
        tuple(_missing(content, asked, script, use)),
        content.facts,
        tuple(table for table in (_wall_times(content.rows), use) if table is not None),
        tuple(picture for picture in all_pictures(content) if picture.name in _FIGURES),
        script,
    )


def write_for(centre: str, content: Content, study: Path, folder: Path) -> list[Path]:
    """``proposal-CENTRE.md``, ``.tex`` and ``.pdf`` beside the figures of the report of ``study`` in ``folder``."""
    made = proposal(content, study, centre)
    make_folder(folder, mode=0o700, purpose="report directory")
    files = {"md": _markdown(made).encode(), "tex": _latex(made).encode(), "pdf": _pdf(made)}
    paths = []
    for ending, data in files.items():
        path = folder / f"proposal-{centre}.{ending}"
        try:
            path.write_bytes(data)
        except OSError as error:
            raise RankupError(
                "unwritable-report", f"cannot write the report: {error.strerror}", context=str(path)
            ) from error
        paths.append(path)
    return paths


def _missing(content: Content, asked: dict[str, Any], script: str, use: Table | None) -> Iterator[str]:
    rows = content.rows
    nodes = sorted({row.nodes for row in rows})
    if len(nodes) < asked["nodes"]:
        have = f"{plural(len(nodes), 'number')} of nodes ({', '.join(map(str, nodes)) or 'none'})"
        yield f"runs on at least {asked['nodes']} numbers of nodes: the study has {have}; --grid nodes=1,2,4"
    for row in rows:
        if row.efficiency is not None and not row.unfair and row.efficiency.median < asked["efficiency"]:
            asked_for = percent(asked["efficiency"])
            yield f"an efficiency of {asked_for}: {row.name} has {percent(row.efficiency.median)}"
    if len(rows) > 1 and not any(row.efficiency and not row.unfair for row in rows):
        yield "an efficiency: the comparison was refused, and the report of the study says why"
    shortest = min((row.seconds.median for row in rows), default=None)
    if shortest is not None and shortest < asked["shortest_s"]:
        yield f"a shortest training of {duration(asked['shortest_s'])}: it is {duration(shortest)}; more epochs"
    if content.scaling == "weak":
        yield "the same input in all runs: this study is of weak scaling (--strong)"
    if asked["gpu_use"] and use is None:
        yield "the use of the GPUs: no node was sampled (jobs with GPUs and --monitor record it)"
    if asked["in_queue"] and not any(word in script for word in ("#SBATCH ", "#PBS ")):
        yield "runs through the centre's scheduler and their job script: rankup scale --site NAME submits them"
    yield from (f"{name}: it failed" for name in content.failed)
    yield from (f"your words: {words}" for words in asked["words"])


def _wall_times(rows: Sequence[ReportRow]) -> Table | None:
    if not rows:
        return None
    columns = [
        Column("Configuration", text=True),
        *(Column("Nodes"), Column(device_word(rows)), Column("Repeats")),
        *(Column("Wall time", "s"), Column("Speed-up"), Column("Efficiency"), Column("Samples/s")),
    ]
    body: list[list[Cell]] = []
    for row in rows:
        fair = None if row.unfair else row
        ratios: list[Cell] = [
            (f"{spread.median:.2f}", spread.median) if spread else ("–", "")
            for spread in (fair and fair.speedup, fair and fair.efficiency)
        ]
        counts: list[Cell] = [(str(count), float(count)) for count in (row.nodes, row.devices, row.repeats)]
        time: Cell = (f"{row.seconds.median:.1f}", row.seconds.median)
        body.append([(row.name, row.name), *counts, time, *ratios, (short(row.rate.median), row.rate.median)])
    caption = (
        "Wall time of the training, the median of the repeats. Efficiency: devices of the baseline times its time, "
        "divided by devices times time."
    )
    return Table("proposal-times", "Wall times", caption, columns, body)


def _use(content: Content) -> Table | None:
    """Of each configuration whose nodes were sampled: how busy its GPUs were, and how full."""
    body: list[list[Cell]] = []
    for group in content.groups:
        busy, full = _samples(group, "gpu"), _samples(group, "gpu_memory")
        if busy.size:
            mean, most = float(busy.mean()), float(full.max()) / 2**30 if full.size else float("nan")
            cells: list[Cell] = [(group.label, group.label), (percent(mean / 100), mean)]
            body.append([*cells, (f"{short(most)} GiB", most), (f"{busy.size:,}", float(busy.size))])
    if not body:
        return None
    columns = [Column("Configuration", text=True), Column("GPU use", "%"), Column("Most GPU memory", "GiB")]
    caption = "The mean over all samples of all nodes, and the memory of the fullest GPU."
    return Table("proposal-gpus", "Use of the GPUs", caption, [*columns, Column("Samples")], body)


def _samples(group: Group, what: str) -> Any:
    values = [getattr(host, what) for run in group.runs for host in run.hosts]
    joined = np.concatenate(values) if values else np.array([])
    return joined[np.isfinite(joined)]


def _script(content: Content, folder: Path) -> str:
    """The job's script of the largest configuration, "" if it ran in no job."""
    largest = max(content.rows, key=lambda row: (row.nodes, row.devices), default=None)
    for group in content.groups:
        if largest is not None and group.label == largest.name:
            for run in group.runs:
                for path in (Path(run.path), folder / Path(run.path).name):
                    if run.path and (path / "job.sh").is_file():
                        return (path / "job.sh").read_text(errors="replace")
    return ""


# ---- The same in three formats -------------------------------------------------------------------------------------

_OPEN = "What is missing"
_NOTHING_OPEN = "Nothing that the study could show."
_SCRIPT = "Job script of the largest configuration"


def _markdown(made: Proposal) -> str:
    parts = [
        f"# {made.title}",
        made.source,
        f"## {_OPEN}",
        "\n".join(f"- {one}" for one in made.missing) or _NOTHING_OPEN,
        "## The work",
        "\n".join(f"- {name}: {value}" for name, value in made.facts),
        *(table.markdown().rstrip() for table in made.tables),
        *(f"![{one.alt}](figures/{one.name}.png)\n\n*{one.title}. {one.caption}*" for one in made.pictures),
        *([f"## {_SCRIPT}", f"```bash\n{made.script.rstrip()}\n```"] if made.script else []),
    ]
    return "\n\n".join(parts) + "\n"


def _latex(made: Proposal) -> str:
    """A document of its own; it requires booktabs, geometry and graphicx."""

    def items(lines: Sequence[str]) -> str:
        return "\n".join(
            [r"\begin{itemize}", *(rf"  \item {latex_text(one)}" for one in lines), r"\end{itemize}"]
        )

    figures = (
        "\n".join(
            [
                r"\begin{figure}[ht]\centering",
                rf"  \includegraphics{{figures/{one.name}.pdf}}",
                rf"  \caption{{{latex_text(one.title)}. {latex_text(one.caption)}}}",
                r"\end{figure}",
            ]
        )
        for one in made.pictures
    )
    lines = [line for text in made.script.splitlines() for line in fixed_lines(latex_letters(text))]
    script = [
        r"\clearpage % figures do not float into it",
        rf"\section*{{{_SCRIPT}}}",
        "\n".join([r"\begin{footnotesize}\begin{verbatim}", *lines, r"\end{verbatim}\end{footnotesize}"]),
    ]
    parts = [
        *(r"\documentclass[a4paper]{article}", r"\usepackage[T1]{fontenc}"),
        "\\usepackage[margin=2cm]{geometry}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\\sloppy",
        rf"\section*{{{latex_text(made.title)}}}",
        latex_text(made.source),
        rf"\section*{{{_OPEN}}}",
        items(made.missing) if made.missing else _NOTHING_OPEN,
        r"\section*{The work}",
        items([f"{name}: {value}" for name, value in made.facts]),
        *(table.latex().rstrip() for table in made.tables),
        *figures,
        *(script if made.script else []),
        r"\end{document}",
    ]
    return "\n\n".join(parts) + "\n"


def _pdf(made: Proposal) -> bytes:
    tables = [
        block
        for table in made.tables
        for block in (Block(table.title, [table.caption]), Block("", table.aligned(), fixed=True))
    ]
    blocks = [
        Block(made.title, [made.source], heading=True),
        Block(_OPEN, [f"• {one}" for one in made.missing] or [_NOTHING_OPEN]),
        Block("The work", [f"{name}: {value}" for name, value in made.facts]),
        *tables,
    ]
    script = [Block(_SCRIPT, made.script.splitlines(), fixed=True)] if made.script else []
    return pages(blocks, made.pictures, script)
