"""The distance of two final states: of snapshots, or of the ends of two scripts. Each is compared in a process of its
own, because that needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.errors import RankupError

FP64_TOLERANCE = 1e-9
# Of an optimizer's option that follows from losses of fewer digits, relative to it.
OPTION_TOLERANCE = 1e-5
# Of a logged number in a precision other than fp64. A mean over other samples differs by more.
LOGGED_TOLERANCE = 1e-2
LOGGED = "metrics/"


@dataclass(frozen=True)
class Distance:
    """``largest``: the largest absolute difference of a tensor; ``tensor``: its name. ``double``: all tensors that
    differ are fp64. ``unequal``: the name of a difference without a distance (no tensor, or another shape or dtype).
    ``logged``: the logged numbers that differ by more than rounding; they are no part of the model.
    """

    largest: float = 0.0
    tensor: str = ""
    double: bool = True
    unequal: str = ""
    logged: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Whether rounding in fp64 explains it, on another number of processes."""
        return not self.unequal and self.double and self.largest <= FP64_TOLERANCE


def distance(left: Path, right: Path, python: str) -> Distance:
    """Between the newest snapshots in the directories ``left`` and ``right``."""
    found = _differences([python, "-m", "rankup", "snapshots", "diff", "--json"], left, right)
    # What is registered may be of the first rank alone: that has another part on another number of processes.
    return judge([one for one in found if not one["name"].startswith("registered/")])


def distance_at_exit(left: Path, right: Path, python: str, ignore: Iterable[str] = ()) -> Distance:
    """Between the numbers with which two scripts ended, in the files ``left`` and ``right``. ``ignore``: names that are
    never twice the same, such as ``registered/clock``."""
    found = _differences([python, "-m", "rankup.runtime.tracing.final_state"], left, right)
    found = [one for one in found if not any(f"/{name}/" in f"/{one['name']}/" for name in ignore)]
    logged = [one for one in found if LOGGED in one["name"]]
    apart = judge([one for one in found if one not in logged])
    others = [one["name"].rpartition(LOGGED)[2] for one in logged if not _rounded(one)]
    return replace(apart, logged=tuple(others))


def _rounded(one: Mapping[str, Any]) -> bool:
    """Whether rounding explains how far two logged numbers are apart; ``largest`` is relative to the number."""
    tolerance = FP64_TOLERANCE if one["left"] == "float64" else LOGGED_TOLERANCE
    return one["largest"] is not None and float(one["largest"]) <= tolerance


def _differences(words: list[str], left: Path, right: Path) -> list[dict[str, Any]]:
    done = shell.run([*words, str(left), str(right)], timeout=600)
    found = json.loads(done.out) if done.code in (0, 1) and done.out else None
    if isinstance(found, list):
        return found
    if isinstance(found, dict) and found.get("error") == "no-snapshot":
        raise RankupError(
            "no-snapshot",
            "a training ended without a snapshot, so that its final state cannot be compared",
            context=str(found.get("context") or f"{left}, {right}"),
            hint="a loop that `break` leaves saves nothing: call run.save() after it, on all ranks",
            exit_code=1,
        )
    raise RankupError(
        "snapshots-not-compared",
        f"the final states could not be compared: {(done.out + done.err).strip()}",
        context=f"{left}, {right}",
        exit_code=1,
    )


def judge(differences: Sequence[Mapping[str, Any]]) -> Distance:
    """The distance from the records of ``rankup snapshots diff --json``. Numbers as text (an optimizer's options) may
    be rounded as well, if a loss decides them."""
    double = all(
        one["left"].startswith(("float64", "complex128")) for one in differences if one["largest"] is not None
    )
    most = Distance(double=double)
    for one in differences:
        if (apart := _apart(one, double=double)) is None:
            return Distance(unequal=one["name"])
        if not most.tensor or apart > most.largest:
            most = Distance(apart, one["name"], double)
    return most


def _apart(one: Mapping[str, Any], *, double: bool) -> float | None:
    if one["largest"] is not None:
        return float(one["largest"])
    texts = (one["left"], one["right"])
    try:
        pair = [float(text) for text in texts]
    except ValueError:
        return None
    if texts[0] == texts[1] or all(text.lstrip("-").isdigit() for text in texts):
        return None
    relative = abs(pair[0] - pair[1]) / max(*map(abs, pair), 1e-300)
    return abs(pair[0] - pair[1]) if relative <= (FP64_TOLERANCE if double else OPTION_TOLERANCE) else None
