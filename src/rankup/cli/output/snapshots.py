"""Snapshots as rows and lines, for ``rankup snapshots``. No torch here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankup.cli.output import console
from rankup.cli.output.table import Cell, print_table
from rankup.core.units import duration
from rankup.errors import RankupError
from rankup.snapshots.layout import Entry, find_entry
from rankup.snapshots.manifest import Damaged, Manifest, read_manifest, verify

if TYPE_CHECKING:  # it needs torch
    from rankup.snapshots.diff import TensorDifference

_HEAD = ("snapshot", "age", "size", "world", "strategy", "metrics", "")


def row(path: Path, root: Path, *, aside: bool = False) -> dict[str, Any]:
    """A snapshot's manifest for ``--json``; ``state`` is unverified, damaged or unreadable. ``within``: a resume enters
    the loop there; ``kept``: as the end of a loop, for as long as the run directory."""
    told: dict[str, Any] = {"snapshot": _below(path, root), "path": str(path)}
    try:
        manifest = read_manifest(path)
    except (Damaged, RankupError, OSError) as error:
        return {
            **told,
            "state": "damaged" if aside or isinstance(error, Damaged) else "unreadable",
            "why": str(error),
        }
    return {
        **told,
        "state": "damaged" if aside else "unverified",
        "step": manifest.step,
        "saved": manifest.saved,
        "bytes": manifest.size,
        "world_size": manifest.world_size,
        "strategy": manifest.metadata.get("strategy"),
        "metrics": manifest.metadata.get("metrics", {}),
        "loop": manifest.metadata.get("loop"),
        "within": bool(manifest.metadata.get("within")),
        "kept": bool(manifest.metadata.get("keep")),
    }


def _below(path: Path, root: Path) -> str:
    """``step-4``, or ``fold-2/step-4`` of another training of the run."""
    return str(path.relative_to(root)) if root in path.parents else path.name


def print_rows(rows: Sequence[dict[str, Any]], root: Path) -> None:
    """A table for people; damaged snapshots in red."""
    if not rows:
        print(f"no snapshots in {root}")
        return
    cells = [_cells(each) for each in rows]
    coloured: list[tuple[Cell, ...]] = [
        line if each["state"] == "unverified" else tuple((text, "red") for text in line)
        for line, each in zip(cells, rows, strict=True)
    ]
    print_table(_HEAD, coloured, fold=("snapshot", "metrics"))
    if kept := [each["bytes"] for each in rows if each.get("kept")]:
        print(f"kept as ends of loops, beside those of Retention: {len(kept)}, {_size(sum(kept))}")


def _cells(told: dict[str, Any]) -> tuple[str, ...]:
    state = "" if told["state"] == "unverified" else told["state"]
    if "step" not in told:
        return told["snapshot"], "", "", "", "", "", state
    metrics = "  ".join(f"{name} {value:.4g}" for name, value in told["metrics"].items() if _number(value))
    age = duration(max(0.0, time.time() - told["saved"]))
    size, world = _size(told["bytes"]), str(told["world_size"])
    return told["snapshot"], age, size, world, told["strategy"] or "", metrics, state or _place(told)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _place(told: dict[str, Any]) -> str:
    """Of a snapshot that is the end of a loop, in words."""
    if not told["kept"] or not told["loop"]:
        return ""
    loop = f"{told['loop']['goal']} {told['loop']['unit']}"
    return f"kept: before the last step of {loop}" if told["within"] else f"kept: the end of {loop}"


def _number(value: object) -> bool:
    return isinstance(value, (int, float))


def verdict(entry: Entry, root: Path) -> dict[str, Any]:
    """Whether a snapshot is good, for ``--json``; ``bytes`` if it is, ``problem`` if not."""
    told: dict[str, Any] = {"snapshot": _below(entry.path, root), "good": True, "bytes": None, "problem": ""}
    try:
        return {**told, "bytes": verify(entry.path).size}
    except Damaged as damage:
        return {**told, "good": False, "problem": str(damage)}


def verdict_line(told: dict[str, Any]) -> str:
    word = console.paint("good", "green") if told["good"] else console.paint("damaged", "red")
    return f"{told['snapshot']:<16}{word}" + (f": {told['problem']}" if told["problem"] else "")


def opened(path: Path) -> tuple[Entry, Manifest]:
    """The snapshot that ``path`` means, verified. Raises ``RankupError`` if it is damaged."""
    entry = find_entry(path)
    try:
        return entry, verify(entry.path)
    except Damaged as damage:
        raise RankupError(
            "damaged-snapshot",
            f"the snapshot is damaged: {damage}",
            context=str(entry.path),
            hint="`rankup snapshots verify RUN` shows which snapshots are good",
            exit_code=1,
        ) from None


def differences(sides: Sequence[tuple[Entry, Manifest]], found: Sequence[TensorDifference]) -> list[str]:
    """Which two snapshots, a summary, then the differences. What is said alike in several places, such as the learning
    rate of each parameter, is one line."""
    which = [f"step {manifest.step}: {console.shown(entry.path)}" for entry, manifest in sides]
    if not found:
        return [*which, "no differences"]
    numbers = [one.largest for one in found if one.largest is not None]
    first = f"{len(found)} differ, the first is {found[0].name}"
    if numbers:
        first += f"; the largest difference is {max(numbers):.6g}"
    alike: dict[tuple[str, str], list[str]] = {}
    for one in found:
        said = f"{one.left} | {one.right}" if one.largest is None else f"{one.largest:.6g}"
        alike.setdefault((one.name.rpartition("/")[2], said), []).append(one.name)
    lines = [
        f"  {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {said}"
        for (_, said), names in alike.items()
    ]
    return [*which, first, *lines]
