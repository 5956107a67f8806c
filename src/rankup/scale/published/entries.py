"""A row of a table as far as it is understood: devices, value, printed ratios, precision, batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankup.scale.published import quantities as q
from rankup.scale.published.columns import Column, find
from rankup.scale.published.page import Surroundings
from rankup.scale.published.setup import setup_of

_BASELINE = re.compile(r"\W*(?:baseline|single|reference|no ddp|without ddp|non-distributed|plain)\b", re.I)


@dataclass(frozen=True)
class Entry:
    """A row as far as it is understood. ``value`` in seconds or per second, over all devices; batches in samples."""

    name: str
    kind: str
    devices: int
    value: q.Quantity | None
    speedup: q.Quantity | None = None
    efficiency: q.Quantity | None = None
    precision: str | None = None
    local_batch: float | None = None
    global_batch: float | None = None
    batch: float | None = None  # a batch size of which nobody tells whether it is of a device or of all
    accuracy: q.Quantity | None = None
    epochs: int | None = None
    repeats: int | None = None
    setup: Mapping[str, str] = field(default_factory=dict)


def entries_of(
    body: Sequence[Sequence[str]],
    columns: Sequence[Column],
    metric: Column | None,
    ratios: Sequence[Column],
    around: Surroundings,
) -> dict[tuple[str, ...], list[Entry]]:
    groups: dict[tuple[str, ...], list[Entry]] = {}
    previous: dict[int, str] = {}
    total = _devices_are_total(body, columns)
    for row in body:
        cells = list(row)
        for column in columns:  # a cell that spans rows is written once
            if column.role in ("group", "nodes") and not cells[column.index]:
                cells[column.index] = previous.get(column.index, "")
            previous[column.index] = cells[column.index]
        where = _devices(cells, columns, around, total)
        if where is None:
            continue
        kind, devices = where
        local, whole = _batches(cells, columns, devices, around)
        value = _value(cells[metric.index], metric) if metric else None
        if value and metric and metric.role == "rate" and metric.per == "device":
            value = value.times(devices)
        entry = Entry(
            name=_name(cells, columns, devices, kind),
            kind=kind,
            devices=devices,
            value=value,
            speedup=_first(q.ratio, cells, ratios, "speedup"),
            efficiency=_efficiency(cells, ratios),
            precision=_precision(cells, columns, metric, devices, around),
            local_batch=local,
            global_batch=whole,
            batch=_batch(cells, columns),
            accuracy=_first(q.share, cells, columns, "accuracy"),
            epochs=_count(cells, columns, "epochs"),
            repeats=_count(cells, columns, "repeats"),
            setup=setup_of(cells, columns),
        )
        key = tuple(cells[c.index] for c in columns if c.role == "group" and not q.precision(cells[c.index]))
        groups.setdefault(key, []).append(entry)
    return {key: _with_baseline(entries, groups) for key, entries in groups.items()}


def _with_baseline(entries: list[Entry], groups: Mapping[tuple[str, ...], list[Entry]]) -> list[Entry]:
    """``entries``; if their printed speed-ups are over a row of another group, that row as well."""
    fewest = min(entry.devices for entry in entries)
    printed = [e for e in entries if e.speedup is not None and abs(e.speedup.value - 1) > 1e-9]
    if not printed or any(e.speedup is not None and abs(e.speedup.value - 1) <= 1e-9 for e in entries):
        return entries
    ones = [
        other
        for others in groups.values()
        for other in others
        if other not in entries
        and other.devices < fewest
        and other.kind == entries[0].kind
        and (other.speedup is None or abs(other.speedup.value - 1) <= 1e-9)
    ]
    fitting = [one for one in ones if all(_over(one, entry) for entry in printed)]
    return [fitting[0], *entries] if fitting else entries


def _over(baseline: Entry, entry: Entry) -> bool:
    """Whether the printed speed-up of ``entry`` is over ``baseline``, by times or by rates."""
    if baseline.value is None or entry.value is None or entry.speedup is None:
        return False
    ratio = baseline.value.value / entry.value.value
    return any(abs(found / entry.speedup.value - 1) < 0.02 for found in (ratio, 1 / ratio))


def _devices_are_total(body: Sequence[Sequence[str]], columns: Sequence[Column]) -> bool:
    """Whether a column ``GPUs`` beside a column ``nodes`` counts all of them: then more nodes have more of them."""
    nodes, gpus = find(columns, "nodes"), find(columns, "devices")
    if nodes is None or gpus is None:
        return True
    pairs = [(q.count(row[nodes.index]), q.count(row[gpus.index])) for row in body]
    known = [(n, g) for n, g in pairs if n and g]
    per_gpus: dict[int, set[int]] = {}
    for n, g in known:
        per_gpus.setdefault(g, set()).add(n)
    return all(len(ns) == 1 for ns in per_gpus.values()) and all(g >= n for n, g in known)


def _devices(
    cells: Sequence[str], columns: Sequence[Column], around: Surroundings, total: bool
) -> tuple[str, int] | None:
    def told(role: str) -> int | None:
        column = find(columns, role)
        if column is None:
            return None
        found = q.devices(cells[column.index])
        whole = q.count(cells[column.index])
        return whole if whole is not None else found[1] if found else None

    nodes, per_node, gpus, cores = told("nodes"), told("per-node"), told("devices"), told("cores")
    if nodes and per_node:
        return "gpu", nodes * per_node
    column = find(columns, "devices")
    if column is not None and re.search(r"\bcpu\b", cells[column.index], re.I):
        return "cpu", gpus or 1
    if gpus == 0:
        return "cpu", cores or 1
    if gpus:
        return "gpu", gpus if total or not nodes else gpus * nodes
    if per_node:
        return "gpu", per_node
    name = find(columns, "name")
    if name is not None:
        found = q.devices(cells[name.index])
        if found and found[0] == "node":
            return ("gpu", found[1] * around.per_node) if around.per_node else found
        if found:
            return found
        if _BASELINE.match(cells[name.index]):
            return "gpu", 1
    if nodes:
        return ("gpu", nodes * around.per_node) if around.per_node else ("node", nodes)
    return ("cpu", cores) if cores else None


def _value(cell: str, metric: Column) -> q.Quantity | None:
    return q.seconds(cell, metric.unit) if metric.role == "time" else q.rate(cell)


def _efficiency(cells: Sequence[str], ratios: Sequence[Column]) -> q.Quantity | None:
    for column in ratios:
        if column.role == "efficiency":
            found = q.share(cells[column.index], column.header)
            if found:
                return found
    return None


def _precision(
    cells: Sequence[str], columns: Sequence[Column], metric: Column | None, devices: int, around: Surroundings
) -> str | None:
    for column in columns:
        if column.role == "precision" and cells[column.index]:
            cell = cells[column.index]
            named = q.precision(cell)
            if named:
                return named
            if re.fullmatch(r"\W*(yes|on|true|✓|✔|✅|x)\W*", cell, re.I):
                return "mixed"
            if re.fullmatch(r"\W*(no|off|false|none|✗|✘|❌)\W*|[-–—]", cell, re.I):
                return "fp32"
    words = " ".join(cells[c.index] for c in columns if c.role in ("name", "group", "other", "devices"))
    named = q.precision(words) or (metric.precision if metric else None)
    return named or around.precision(devices)


def _batches(
    cells: Sequence[str], columns: Sequence[Column], devices: int, around: Surroundings
) -> tuple[float | None, float | None]:
    """(samples per device, samples over all devices), as far as they are told."""
    local: float | None = None
    whole: float | None = None
    for column in columns:
        if column.role != "batch":
            continue
        cell = cells[column.index]
        product = re.search(r"(\d+)\s*[x×*]\s*(\d+)", cell)
        found = q.number(cell)
        if product and {int(product[1]), int(product[2])} & {devices}:
            whole = float(int(product[1]) * int(product[2]))
        elif found and (column.per == "device" or re.search(r"per|/\s*gpu", cell, re.I)):
            local = found.value
        elif found and (column.per == "global" or re.search(r"global|total", cell, re.I)):
            whole = found.value
    stated = around.batch()
    if local is None and whole is None and stated:
        local, whole = (stated[1], None) if stated[0] == "device" else (None, float(stated[1]))
    if local is not None and whole is None:
        whole = local * devices
    if whole is not None and local is None:
        local = whole / devices
    return local, whole


def _batch(cells: Sequence[str], columns: Sequence[Column]) -> float | None:
    column = find(columns, "batch")
    found = q.number(cells[column.index]) if column is not None and not column.per else None
    return found.value if found else None


def resolved(entries: list[Entry]) -> list[Entry]:
    """A batch that grows with the devices is that of all of them; one that changes otherwise, too."""
    batches = {entry.batch for entry in entries}
    if None in batches or len(batches) < 2 or any(entry.global_batch for entry in entries):
        return entries
    return [replace(e, global_batch=e.batch, local_batch=(e.batch or 0) / e.devices) for e in entries]


def _name(cells: Sequence[str], columns: Sequence[Column], devices: int, kind: str) -> str:
    name = find(columns, "name")
    if name is not None and cells[name.index]:
        return cells[name.index]
    word = {"gpu": "GPU", "cpu": "core", "node": "node"}[kind]
    count = f"{devices} {word}{'s' * (devices > 1)}"
    # What tells rows of as many devices apart: a strategy, a method.
    texts = [cells[c.index] for c in columns if c.role == "other" and re.match(r"[A-Za-z]", cells[c.index])]
    return f"{texts[0]}, {count}" if texts else count


def _first(
    parse: Callable[[str], q.Quantity | None], cells: Sequence[str], columns: Sequence[Column], role: str
) -> q.Quantity | None:
    found = (parse(cells[column.index]) for column in columns if column.role == role)
    return next((quantity for quantity in found if quantity), None)


def _count(cells: Sequence[str], columns: Sequence[Column], role: str) -> int | None:
    column = find(columns, role)
    return None if column is None else q.count(cells[column.index])
