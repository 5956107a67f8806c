"""``python -m benchmarks.scale_out_page`` writes the tables of ``results/scale-out.json`` into the page about them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.core.files import write_atomic

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "ten-thousand-ranks.md"
RESULT = ROOT / "benchmarks" / "results" / "scale-out.json"

Costs = Mapping[str, Mapping[str, float]]


def page(text: str, result: Mapping[str, Any]) -> str:
    """``text`` with each table between its two comments as ``result`` has it."""
    details = result["details"]
    for name, lines in {
        "simulated": simulated(next(reversed(details["simulated"].values()))),
        "order": order(details["sample order"]),
        "killed": killed(details["measured"]["killed"]),
        "saved": saved(details["measured"]["saved"]),
        "extrapolated": extrapolated(details["extrapolated"]),
        "claims": claims(result["claims"]),
    }.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        text, found = re.subn(
            f"{begin}.*?{end}",
            lambda _, lines=lines, begin=begin, end=end: begin + "\n".join(lines) + "\n" + end,  # type: ignore[misc]
            text,
            flags=re.S,
        )
        if found != 1:
            raise SystemExit(f"{PAGE} has {found} places for the table {name}")
    return text


def simulated(sizes: Mapping[str, Costs]) -> list[str]:
    """A column for each number of ranks; rank 0 and an ordinary one in a cell, if they differ."""

    def of(part: str, what: str, show: Callable[[float], str], *, beyond: bool = False) -> list[str]:
        cells = []
        for costs in sizes.values():
            plain = costs["plain DDP"].get(part, {}).get(what, 0) if beyond else 0
            both = [show(costs[who].get(part, {}).get(what, 0) - plain) for who in ("rank 0", "rank 1")]
            cells.append(both[0] if both[0] == both[1] else " / ".join(both))
        return cells

    rows = {
        "start: received": of("start", "bytes got", _bytes),
        "start: sent": of("start", "bytes given", _bytes),
        "start: CPU s": of("start", "cpu s", _seconds),
        "start: memory beyond plain DDP's": of("start", "memory bytes", _bytes, beyond=True),
        "ranks that it has messages for": of("run", "neighbours", _count),
        "a step beyond plain DDP: messages": of("step", "collectives", _count, beyond=True),
        "the same, mean of an epoch's steps": of("steps", "collectives", "{:.2f}".format, beyond=True),
        "a step beyond plain DDP: sent": of("step", "bytes given", _bytes, beyond=True),
        "the end of an epoch: messages": of("end of an epoch", "collectives", _count),
        "the end of an epoch: received": of("end of an epoch", "bytes got", _bytes),
        "the first save: messages": of("first save", "collectives", _count),
        "the first save: received": of("first save", "bytes got", _bytes),
        "the first save: sent": of("first save", "bytes given", _bytes),
        "the first save: CPU s": of("first save", "cpu s", _seconds),
        "the first save: memory": of("first save", "memory bytes", _bytes),
        "a save: messages": of("save", "collectives", _count),
        "a save: received": of("save", "bytes got", _bytes),
        "a save: sent": of("save", "bytes given", _bytes),
        "a save: CPU s": of("save", "cpu s", _seconds),
        "a save: memory": of("save", "memory bytes", _bytes),
        "a snapshot: files": [_count(costs["rank 0"]["snapshot"]["files"]) for costs in sizes.values()],
        "a snapshot: manifest": [
            _bytes(costs["rank 0"]["snapshot"]["manifest bytes"]) for costs in sizes.values()
        ],
        "a resume: received": of("resume", "bytes got", _bytes),
        "a resume: sent": of("resume", "bytes given", _bytes),
        "a resume: CPU s": of("resume", "cpu s", _seconds),
        "a resume: memory beyond the start's": [
            " / ".join(_bytes(_more(costs[who], "resume", "start")) for who in ("rank 0", "rank 1"))
            for costs in sizes.values()
        ],
    }
    return _table(
        ["ranks", *(f"{int(size):,}" for size in sizes)], ([name, *row] for name, row in rows.items())
    )


def _more(costs: Costs, part: str, than: str) -> float:
    return max(0.0, costs[part].get("memory bytes", 0) - costs[than].get("memory bytes", 0))


def order(found: Costs) -> list[str]:
    return _table(
        ["samples", "until the first batch: CPU s", "memory"],
        (
            [
                _count(float(name.split()[0])),
                _seconds(costs.get("cpu s", 0)),
                _bytes(costs.get("memory bytes", 0)),
            ]
            for name, costs in found.items()
        ),
    )


def killed(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    return _table(
        ["ranks", "first start, s", "detection, s", "until all begin again, s", "until the first step, s",
         "steps trained again", "memory of a rank"],
        (
            [ranks, *(f"{row[name]:.1f}" for name in ("start s", "detection s", "restart s", "resume s")),
             _count(row["steps trained again"]), _bytes(row["peak bytes"])]
            for ranks, row in found.items()
        ),
    )  # fmt: skip


def saved(found: Sequence[Mapping[str, float]]) -> list[str]:
    return _table(
        ["ranks", "state", "of it frozen", "state / ranks + 64 MB", "memory of a save on a rank", "a step, s",
         "stall of a save, s"],
        (
            [_count(row["ranks"]), _bytes(row["state bytes"]), _bytes(row["frozen bytes"]),
             _bytes(row["state bytes"] / row["ranks"] + 64e6),
             _bytes(row["beyond the state bytes"]), _seconds(row["step s"]), _seconds(row["stall s"])]
            for row in found
        ),
    )  # fmt: skip


def extrapolated(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return _table(
        ["GPUs", "hours between failures", "a save stops it for", "a restart takes", "save every", "lost to saves",
         "to restarts", "in all"],
        (
            [_count(row["gpus"]), f"{row['hours between failures']:g}", f"{row['save stops for s']:g} s",
             f"{row['restart s'] / 60:g} min", f"{row['best interval s'] / 60:.1f} min",
             *(f"{100 * row[name]:.1f} %" for name in ("lost to saves", "lost to restarts", "lost in all"))]
            for row in rows
        ),
    )  # fmt: skip


def claims(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return _table(
        ["on 10,000 ranks, where it does not say others", "found", "target", ""],
        (
            [
                claim["claim"],
                _count(claim["value"]) if claim["value"] >= 100 else f"{claim['value']:.3g}",
                claim["target"],
                "met" if claim["met"] else "**missed**",
            ]
            for claim in found
        ),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.2f}"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


if __name__ == "__main__":
    write_atomic(PAGE, page(PAGE.read_text(), json.loads(RESULT.read_text())))
