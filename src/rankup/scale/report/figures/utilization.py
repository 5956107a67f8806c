"""What samplers saw on the nodes: how busy GPUs and CPUs were, their memory, power and temperature; the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankup.scale.report.content import Group
from rankup.scale.report.figures.lines import draw_lines, time_unit
from rankup.scale.report.figures.picture import (
    MOST_SERIES,
    MUTED,
    LineLabel,
    Picture,
    plain_axes,
    style_of,
    tell_lines,
)
from rankup.scale.report.run_records import HostSamples
from rankup.scale.report.text import listed, short
from rankup.scale.report.thin import Numbers, thinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 400
_MOST_DRAWN = 20_000
_STRETCHES = 120
_GIB = 2.0**30


@dataclass(frozen=True)
class Measure:
    """``word`` names the axis, ``what`` says whose value it is; ``of_all``: also drawn of more runs than have colours;
    ``most``: the greatest value that there can be."""

    name: str
    word: str
    unit: str
    what: str
    value: Callable[[HostSamples], Numbers]
    of_all: bool = False
    most: float | None = None


def _network(host: HostSamples) -> Numbers:
    """MB/s since the sample before."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rate: Numbers = host.network / np.diff(host.seconds, prepend=np.nan) / 1e6
    return np.where(np.isfinite(rate), rate, np.nan)


MEASURES: Sequence[Measure] = (
    Measure(
        "gpu-utilization",
        "GPU utilisation",
        "%",
        "The mean over the node's GPUs",
        lambda host: host.gpu,
        of_all=True,
        most=100.0,
    ),
    Measure(
        "cpu-utilization",
        "CPU utilisation",
        "%",
        "Of all cores of the job on the node",
        lambda host: host.cpu,
        of_all=True,
        most=100.0,
    ),
    Measure(
        "gpu-memory",
        "GPU memory",
        "GiB",
        "Of the node's GPU that has most in use",
        lambda host: host.gpu_memory / _GIB,
    ),
    Measure("gpu-power", "GPU power", "W", "All GPUs of the node together", lambda host: host.power),
    Measure(
        "gpu-temperature", "GPU temperature", "°C", "The node's hottest GPU", lambda host: host.temperature
    ),
    Measure(
        "node-memory",
        "memory of the node",
        "GiB",
        "In use by all programs, without caches that can be dropped",
        lambda host: host.memory / _GIB,
    ),
    Measure(
        "network",
        "network",
        "MB/s",
        "Sent and received through the node's interfaces, without what RDMA cards send past the system",
        _network,
    ),
)


def utilization(groups: Sequence[Group], measure: Measure) -> Picture | None:
    """A line per node of a single run; else the first node of the first repeat of each group."""
    if len(groups) > MOST_SERIES and not measure.of_all:
        return None
    found = [(label, host, measure.value(host)) for label, host in _lines(groups)]
    lines = [one for one in found if np.isfinite(one[2]).any()]
    if not lines:
        return None
    word, unit = measure.word, measure.unit
    means = [(label, float(np.nanmean(values))) for label, _, values in lines]
    number = "{:.0f}".format if unit == "%" else short
    told = listed([f"{number(mean)} {unit} in {label}" for label, mean in means[:4]])
    rest = f" and {len(means) - 4} more" if len(means) > 4 else ""
    repeats = (
        " Of each configuration, the first repeat." if any(len(group.runs) > 1 for group in groups) else ""
    )
    nodes = (
        " Of each run, its first node."
        if len(groups) > 1 and len(lines) < sum(_nodes(g) for g in groups)
        else ""
    )
    many = len(groups) == 1 and len(lines) > MOST_SERIES
    how = (
        "the median over the nodes, a band with the middle four fifths of them, and by name those that are farthest "
        "from it, if they are 10 % away"
        if many
        else "thinned to the least and the greatest of each stretch"
    )
    title = word[:1].upper() + word[1:]
    draw = _draw_band if many else _draw
    return Picture(
        measure.name,
        title,
        f"{title} over time, on average {told}{rest}.",
        f"{measure.what}, as sampled; {how}.{repeats}{nodes}",
        lambda figure: draw(figure, lines, measure),
    )


_Lines = Sequence[tuple[str, HostSamples, Numbers]]


def _nodes(group: Group) -> int:
    return len(group.runs[0].hosts)


def _lines(groups: Sequence[Group]) -> list[tuple[str, HostSamples]]:
    if len(groups) == 1:
        return [(host.host, host) for host in groups[0].runs[0].hosts]
    return [(group.label, group.runs[0].hosts[0]) for group in groups if group.runs[0].hosts]


def _draw_band(figure: Figure, lines: _Lines, measure: Measure) -> None:
    """Many nodes of one run, on one grid of times."""
    end = max(float(np.nanmax(host.seconds)) for _, host, _ in lines)
    grid = np.linspace(0, end, _STRETCHES)
    table = np.array([_on_grid(host.seconds, values, grid) for _, host, values in lines])
    axes_word = f"{measure.word} ({measure.unit})"
    draw_lines(figure, [label for label, _, _ in lines], grid, table, axes_word)


def _on_grid(seconds: Numbers, values: Numbers, grid: Numbers) -> Numbers:
    known = np.isfinite(values) & np.isfinite(seconds)
    found: Numbers = np.interp(grid, seconds[known], values[known], left=np.nan, right=np.nan)
    return found


def _draw(figure: Figure, lines: _Lines, measure: Measure) -> None:
    axes = figure.subplots()
    factor, unit = time_unit(max(float(np.nanmax(host.seconds)) for _, host, _ in lines))
    plain_axes(axes, f"time since the start ({unit})", f"{measure.word} ({measure.unit})")
    many = len(lines) > MOST_SERIES
    labels = []
    for index, (label, host, values) in enumerate(lines):
        finite = np.isfinite(values) & np.isfinite(host.seconds)
        x, y = host.seconds[finite] / factor, values[finite]
        kept = thinned(y, max(40, min(_MOST_POINTS, _MOST_DRAWN // len(lines))))
        style = (
            {"color": MUTED, "linewidth": 0.5, "alpha": 0.45}
            if many
            else {**style_of(index), "linewidth": 1.1}
        )
        axes.plot(x[kept], y[kept], **style)
        if len(y):
            labels.append(LineLabel(label, float(x[-1]), float(y[-1]), index))
    top = measure.most or max(float(np.nanmax(values)) for _, _, values in lines)
    axes.set_ylim(0, 1.03 * top or 1.0)
    if not many:
        tell_lines(axes, labels)
