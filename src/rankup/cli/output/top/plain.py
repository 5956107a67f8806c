"""One frame for a pipe: whole lines that grep finds."""

from __future__ import annotations

import time
from textwrap import wrap

from rankup.cli.output.top.columns import COLUMNS, columns_that_fit, headings, line
from rankup.core.columns import aligned
from rankup.core.progress import progress_numbers, progress_place, progress_share
from rankup.core.units import duration
from rankup.monitor.alerts.alert import Alert
from rankup.monitor.frame import Frame
from rankup.monitor.rows import NodeRow

_LEFT_OUT = {"history", "mem"}  # a curve; the share of "GiB"
_GIB = 1 << 30


def plain_lines(frame: Frame, width: int | None = None) -> list[str]:
    """All of a frame. ``width``: that of a terminal, where lines are wrapped and a table has the columns that fit."""
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(frame.time))}  {headline(frame)}"]
    for alert in frame.alerts:
        lines.append(f"alert: {alert_text(alert, frame.time)}")
        lines += [f"  hint: {alert.finding.fix}"] if alert.active and alert.finding.fix else []
    lines += [f"node {node_text(node)}" for node in frame.nodes]
    if width is not None:
        lines = [part for one in lines for part in wrap(one, width, subsequent_indent="  ")]
    if frame.ranks and width is not None:
        fitting = columns_that_fit(frame.ranks, width)
        lines += [headings(fitting), *(" ".join(line(row, fitting)) for row in frame.ranks)]
    elif frame.ranks:
        columns = [
            column
            for column in COLUMNS
            if column.name not in _LEFT_OUT and any(column.text(row, 255).strip(" -") for row in frame.ranks)
        ]
        head = [column.heading for column in columns]
        lines += aligned([head, *([column.text(row, 255) for column in columns] for row in frame.ranks)])
    return lines


def headline(frame: Frame, *, short: bool = False) -> str:
    """The run, its state, and where it is; ``short``: without the reason."""
    words = [frame.name, frame.state + (f" ({frame.reason})" if frame.reason and not short else "")]
    if frame.step is not None:
        step = dict(frame.step)
        if not frame.goes_on:
            step["left"] = None
        if frame.still:
            step["samples_per_s"] = 0.0
        words += [progress_place(step), progress_numbers(step)]
    elif not frame.ended:
        known = any(row.rank is not None for row in frame.ranks)
        words.append("no step yet" if known else "its ranks have told nothing")
    return "  ".join(words)


def shortest_headline(frame: Frame) -> str:
    """The run, its state, how much is done, and the time left."""
    step = frame.step or {}
    words = [frame.name, frame.state]
    if (share := progress_share(step) if step else None) is not None:
        words.append(f"{100 * share:.0f} %")
    if step.get("left") is not None and frame.goes_on:
        words.append(f"left {duration(step['left'])}")
    return "  ".join(words)


def alert_text(alert: Alert, now: float) -> str:
    """``straggler for 5 min 02 s, 1.2 GPU-hours lost: rank 1 is slow …``, in one line without what to do."""
    if alert.until is not None:
        words = [f"{alert.finding.code}, over, lasted {duration(alert.until - alert.since)}"]
    else:
        words = [f"{alert.finding.code} for {duration(max(0.0, now - alert.since))}"]
    words += [alert.cost] if alert.cost else []
    return f"{', '.join(words)}: {alert.finding.message}"


def node_text(node: NodeRow) -> str:
    """``n1: CPU 34 %, memory 12.1 of 64.0 GiB, network 1.2 MB/s, disk 120 GiB free``."""
    words = []
    if node.cpu is not None:
        words.append(f"CPU {node.cpu:.0f} %")
    if node.memory is not None:
        whole = f" of {node.memory_total / _GIB:.1f}" if node.memory_total else ""
        words.append(f"memory {node.memory / _GIB:.1f}{whole} GiB")
    if node.network is not None:
        words.append(f"network {node.network / 1e6:.1f} MB/s")
    if node.disk_free is not None:
        words.append(f"disk {node.disk_free / _GIB:.0f} GiB free")
    if not words:  # nvidia-smi tells of GPUs alone
        words.append(f"{node.gpus} GPU{'s' * (node.gpus != 1)}")
    if node.silent_s > 30:
        words.append(f"no sample for {duration(node.silent_s)}")
    return f"{node.host}: {', '.join(words)}"
