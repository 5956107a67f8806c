"""A rehearsal as text: for each launch a table of the processes that would run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap

from rankup.core.columns import aligned
from rankup.core.hostlist import compress
from rankup.rehearse.processes import BY_ITSELF, Launch, Process

_SHOWN = (
    "MASTER_",
    "NCCL_",
    "RCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
    "OMP_NUM",
    "CUDA_",
    "TORCH_",
    "WORLD_SIZE",
    "HIP_",
    "ROCR_",
)


def table_lines(launches: Sequence[Launch], width: int = 100) -> list[str]:
    """A table for each launch; processes of a host that are alike but for their ranks share a line."""
    lines: list[str] = []
    for launch in launches:
        group = launch.processes
        if not group:
            lines += [f"Launch {launch.number}: no process by {launch.agents[0].launcher}", ""]
            continue
        first, reached = group[0], launch.started[0].launches
        by = first.launcher
        if reached and launch.agents:
            by += f", started by {' and '.join(one['launcher'] for one in reached)}"
        lines += [
            f"Launch {launch.number}: {_count(len(group), 'process', 'processes')} by {by}"
            + (f", {_size(group)}" if _size(group) else "")
        ]
        for command in dict.fromkeys(one.command for one in group):
            lines += _entry("command", command, width)
        for folder in dict.fromkeys(one.folder for one in group):
            lines += _entry("folder", folder, width)
        meetings = list(dict.fromkeys(one.meeting for one in group))
        if len(meetings) == 1 and (meetings[0] or group[0].source != BY_ITSELF):
            lines += _entry("meet at", meetings[0] or "(no MASTER_ADDR)", width)
        lines += _entry("ranks by", ", ".join(dict.fromkeys(one.source for one in group)), width)
        lines += _environment(group, width)
        lines += ["", *("  " + line for line in _rows(group, meetings=len(meetings) > 1)), ""]
    return lines


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _size(group: Sequence[Process]) -> str:
    sizes = dict.fromkeys(one.world_size for one in group)
    return "world size " + " or ".join("?" if size is None else str(size) for size in sizes)


def _entry(label: str, text: str, width: int) -> list[str]:
    return wrap(
        text, max(40, width), initial_indent=f"  {label:<9} ", subsequent_indent=" " * 12,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _rows(group: Sequence[Process], *, meetings: bool) -> list[str]:
    head = ["host", "node", "rank", "local", "GPU", "CPUs", *(["meet at"] if meetings else [])]
    rows = [head]
    for _, alike in groupby(
        group, key=lambda one: (one.host, one.node_rank, one.cpus, one.meeting, one.agent)
    ):
        same = list(alike)
        row = [
            same[0].host,
            _numbers([one.node_rank for one in same[:1]]),
            _numbers([one.rank for one in same]),
            _numbers([one.local_rank for one in same]),
            _texts([one.device for one in same]),
            same[0].cpus,
        ]
        rows.append([*row, *([same[0].meeting or "-"] if meetings else [])])
    return aligned(rows)


def _numbers(numbers: Sequence[int | None]) -> str:
    """``[0, 1, 2, 3]`` → ``0-3``; ``[0, 0]`` → ``0 (2 times)``."""
    if None in numbers:
        return "?"
    return _texts([str(number) for number in numbers])


def _texts(texts: Sequence[str]) -> str:
    if len(set(texts)) == 1:
        return texts[0] if len(texts) == 1 else f"{texts[0]} ({len(texts)} times)"
    if all(text.isdigit() for text in texts) and len(set(texts)) == len(texts):
        return compress(texts).strip("[]") if texts == sorted(texts, key=int) else ",".join(texts)
    return ",".join(texts)


def _environment(group: Sequence[Process], width: int) -> list[str]:
    """Variables that ranks and their libraries read, if all processes have the same value; else only their names."""
    names = sorted({name for one in group for name in one.environment if name.startswith(_SHOWN)})
    same: list[str] = []
    different: list[str] = []
    for name in names:
        values = {one.environment.get(name) for one in group}
        value = next(iter(values))
        (same if len(values) == 1 else different).append(f"{name}={value}" if len(values) == 1 else name)
    lines = _entry("variables", "  ".join(same), width) if same else []
    return lines + (_entry("differ", ", ".join(different), width) if different else [])


def changed_lines(paths: Iterable[str], folder: str) -> list[str]:
    """Files that the script wrote or removed: those outside of its folder in full, the others counted."""
    paths = list(paths)
    inside = [path for path in paths if path.startswith(folder.rstrip(os.sep) + os.sep)]
    outside = [path for path in paths if path not in inside]
    return [*(f"  {path}" for path in outside), *([f"  {len(inside)} in {folder}"] if inside else [])]
