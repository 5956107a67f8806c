"""How busy GPUs and CPUs were, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankup.scale.report.content import Group
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
from rankup.scale.report.text import listed
from rankup.scale.report.thin import thinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 400
_MOST_DRAWN = 20_000


def utilization(groups: Sequence[Group], device: str) -> Picture | None:
    """``device`` is ``gpu`` or ``cpu``. A line per node of a single run; else the first repeat of each group."""
    lines = [line for line in _lines(groups) if np.isfinite(getattr(line[1], device)).any()]
    if not lines:
        return None
    word = device.upper()
    means = [(label, float(np.nanmean(getattr(host, device)))) for label, host in lines]
    told = listed([f"{mean:.0f} % in {label}" for label, mean in means[:4]])
    rest = f" and {len(means) - 4} more" if len(means) > 4 else ""
    what = "The mean over the node's GPUs" if device == "gpu" else "Of all cores of the job on the node"
    repeats = (
        " Of each configuration, the first repeat." if any(len(group.runs) > 1 for group in groups) else ""
    )
    nodes = (
        " Of each run, its first node."
        if len(groups) > 1 and len(lines) < sum(_nodes(g) for g in groups)
        else ""
    )
    return Picture(
        f"{device}-utilization",
        f"{word} utilisation",
        f"{word} utilisation over time, on average {told}{rest}.",
        f"{what}, once a second, thinned to the least and the greatest of each stretch.{repeats}{nodes}",
        lambda figure: _draw(figure, lines, device),
    )


def _nodes(group: Group) -> int:
    return len(group.runs[0].hosts)


def _lines(groups: Sequence[Group]) -> list[tuple[str, HostSamples]]:
    if len(groups) == 1:
        return [(host.host, host) for host in groups[0].runs[0].hosts]
    return [(group.label, group.runs[0].hosts[0]) for group in groups if group.runs[0].hosts]


def _draw(figure: Figure, lines: Sequence[tuple[str, HostSamples]], device: str) -> None:
    axes = figure.subplots()
    longest = max(float(np.nanmax(host.seconds)) for _, host in lines)
    factor, unit = (3600, "h") if longest > 2 * 3600 else (60, "min") if longest > 300 else (1, "s")
    plain_axes(axes, f"time since the start ({unit})", f"{device.upper()} utilisation (%)")
    many = len(lines) > MOST_SERIES
    labels = []
    for index, (label, host) in enumerate(lines):
        values = getattr(host, device)
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
    axes.set_ylim(0, 103)
    if not many:
        tell_lines(axes, labels)
