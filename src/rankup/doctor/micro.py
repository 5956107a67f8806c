"""Micro-benchmarks by themselves: layernorm, matmul, allreduce, on the processes that ``rankup run`` would start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.core.records import read_records
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.run.execute import View, execute

# Name → sizes. Of layernorm the features of a row, of matmul the rows, of allreduce the bytes.
BENCHMARKS: Mapping[str, tuple[int, ...]] = {
    "layernorm": (256, 1024, 4096, 16384),
    "matmul": (256, 512, 1024, 2048),
    "allreduce": (4 * 1024, 256 * 1024, 4 * 1024**2, 25 * 1024**2),
}
DTYPES = ("fp32", "bf16", "fp16", "fp64")
HEAD = ("size", "forward", "backward", "rate")


def measure(
    name: str, sizes: Sequence[int], dtype: str, flags: Mapping[str, Any], view: View
) -> list[dict[str, Any]]:
    """The records of one benchmark, a size each. Raises RankupError."""
    if dtype not in DTYPES:
        raise RankupError("bad-dtype", f"unknown dtype {dtype!r}", hint=f"one of: {', '.join(DTYPES)}")
    chosen = list(sizes or BENCHMARKS[name])
    if min(chosen) < 1:
        raise RankupError("bad-sizes", f"sizes must be at least 1, got {min(chosen)}")
    command = ("-m", "rankup.doctor.probes.micro_rank", name, dtype, *map(str, chosen))
    result = execute(
        resolve_here({"name": f"doctor-{name}", "monitor": False, **flags}, command=command), view
    )
    if result.code != 0:
        raise result.error or RankupError(
            "benchmark-failed", f"the benchmark {name} failed", context=str(result.run.path), exit_code=1
        )
    return read_records(result.run.records / "micro.jsonl", "micro")


def rows(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            f"{record['size']:,}",
            _time(record["forward"]),
            "–" if record["backward"] is None else _time(record["backward"]),
            f"{record['rate']:,.2f} {record['unit']}",
        ]
        for record in records
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 1e-2 else f"{seconds * 1e3:,.1f} ms"


def plot(
    records: Sequence[Mapping[str, Any]], path: Path, *, save: Callable[..., None] | None = None
) -> None:
    """The rate by size as a picture. Raises ``no-matplotlib``."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RankupError(
            "no-matplotlib",
            "matplotlib is not installed",
            context=f"--plot {path}",
            hint="pip install 'rankup[report]'",
        ) from None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([one["size"] for one in records], [one["rate"] for one in records], marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size" if records[0]["benchmark"] != "allreduce" else "bytes")
    axes.set_ylabel(records[0]["unit"])
    axes.set_ylim(bottom=0)
    axes.set_title(f"{records[0]['benchmark']}, {records[0]['dtype']}, {records[0]['device']}")
    figure.savefig(path)
