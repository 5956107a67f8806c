"""Each entry of a curve beside the one that it is compared with: recomputed ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankup.scale.published import quantities as q
from rankup.scale.published.curves import Curve
from rankup.scale.published.entries import Entry


@dataclass(frozen=True)
class Pair:
    """``speedup`` and ``efficiency`` are recomputed from the values; None where the table has none.

    ``agrees``: whether the printed ratio is what the values give, as exactly as both are printed; None if nothing can
    be compared. ``error``: by what share it is off, beyond rounding.
    """

    baseline: Entry
    entry: Entry
    speedup: float | None
    efficiency: float | None
    agrees: bool | None
    error: float


@dataclass(frozen=True)
class Comparison:
    """One curve, and its entries beside their baselines."""

    curve: Curve
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, curve: Curve) -> Comparison:
        return cls(curve, pairs_of(curve))


def pairs_of(curve: Curve) -> list[Pair]:
    """Every entry with more devices than its baseline, and its baseline."""
    paired = []
    for entry in curve.entries:
        baseline = baseline_of(curve, entry)
        if baseline is not None and baseline is not entry:
            paired.append(_pair(curve, baseline, entry))
    return paired


def baseline_of(curve: Curve, entry: Entry) -> Entry | None:
    """What ``entry`` is compared with: what its printed speed-up was computed from, if one is printed and one fits;
    else the fewest devices among those that are most like it, and the best of them."""
    others = [one for one in curve.entries if one.kind == entry.kind and one.devices < entry.devices]
    if not others:
        return None
    fitting = [one for one in others if _fits(curve, one, entry) and (one.speedup is None or _is_one(one))]
    return max(
        fitting or others, key=lambda one: (_likeness(one, entry), -one.devices, _goodness(curve, one))
    )


def _is_one(entry: Entry) -> bool:
    return entry.speedup is not None and abs(entry.speedup.value - 1) < 1e-9


def _goodness(curve: Curve, entry: Entry) -> float:
    if entry.value is None:
        return 0.0
    return entry.value.value if curve.metric == "rate" else -entry.value.value


def _likeness(one: Entry, entry: Entry) -> int:
    alike = 2 * q.same_precision(one.precision, entry.precision)
    same = (one.global_batch is not None and one.global_batch == entry.global_batch) or (
        one.local_batch is not None and one.local_batch == entry.local_batch
    )
    return alike + same


def _fits(curve: Curve, baseline: Entry, entry: Entry) -> bool:
    found, slack = _speedup(curve, baseline, entry)
    stated = entry.speedup
    if found is None or stated is None:
        return False
    return abs(found - stated.value) <= stated.half + found * (slack + 0.1 * stated.about) + 1e-9


def _speedup(curve: Curve, baseline: Entry, entry: Entry) -> tuple[float | None, float]:
    """The ratio that the values give, and by what share their rounding may change it."""
    if baseline.value is None or entry.value is None:
        return None, 0.0
    before, after = baseline.value, entry.value
    slack = before.slack + after.slack
    if curve.metric == "rate":
        return after.value / before.value, slack
    found = before.value / after.value
    return (found * entry.devices / baseline.devices if curve.weak else found), slack


def _pair(curve: Curve, baseline: Entry, entry: Entry) -> Pair:
    found, slack = _speedup(curve, baseline, entry)
    ratio = entry.devices / baseline.devices
    stated = entry.speedup
    if found is None and stated is not None and baseline.speedup is not None:
        found = stated.value / baseline.speedup.value
        return Pair(baseline, entry, found, found / ratio, None, 0.0)
    if found is None:
        efficiency = entry.efficiency.value if entry.efficiency else None
        speedup = None if efficiency is None else efficiency * ratio
        return Pair(baseline, entry, speedup, efficiency, None, 0.0)
    errors = []
    if stated is not None:
        # Whatever it was divided by: the row itself may be compared with a better baseline than its author took.
        ones = [one for one in curve.entries if _is_one(one)]
        possible = [_speedup(curve, one, entry)[0] for one in ones or curve.entries if one is not entry]
        weak_raw = found / ratio if curve.weak else found
        if not ones and baseline.speedup is not None:  # both against a run that is not in the table
            possible.append(found * baseline.speedup.value)
        values = [found, weak_raw, *(value for value in possible if value is not None)]
        errors.append(min(_beyond(stated, value, slack) for value in values))
    if entry.efficiency is not None:
        printed = found if stated is None else stated.value
        whole = [found / ratio, printed / entry.devices * baseline.devices, printed / entry.devices]
        errors.append(min(_beyond(entry.efficiency, value, slack + 0.005) for value in whole))
    error = max(errors, default=0.0)
    return Pair(baseline, entry, found, found / ratio, error <= 0.0 if errors else None, error)


def _beyond(stated: q.Quantity, found: float, slack: float) -> float:
    """By what share ``stated`` is off ``found``, beyond what rounding explains; at most 0: it agrees."""
    allowed = 2 * stated.half + found * (slack + 0.1 * stated.about + 0.005)
    return (abs(stated.value - found) - allowed) / found
