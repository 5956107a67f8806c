"""Which configurations are compared with which baseline.

A *series* holds the configurations that differ only in how much and how they are distributed: nodes, processes, GPUs,
strategy. A grid over precisions, launchers or cores per task has a series for each value, and each series its own
baselines: one device without DDP, one device with DDP. A *family* is a baseline and what is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankup.errors import RankupError
from rankup.scale.plan import Point
from rankup.scale.results import Configuration, StudyResults

# Keys of a grid that say how the work is distributed; every other key says what the work is, or on what it runs.
DISTRIBUTION = frozenset({"nodes", "nproc", "nproc-per-node", "gpus", "gpus-per-node", "strategy"})
THREADS = "cpus-per-task"

TITLES = {
    "none": "one device without DDP",
    "ddp": "one device with DDP",
    "other": "one device",
    "threads": "the fewest cores per task",
    "chosen": "the chosen baseline",
}


@dataclass(frozen=True)
class Family:
    """``others`` are compared with ``baseline``; ``kind`` is a key of ``TITLES``."""

    study: StudyResults
    kind: str
    baseline: Configuration
    others: tuple[Configuration, ...]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return (self.baseline, *self.others)

    def label(self, configuration: Configuration) -> str:
        return label(configuration, self.study)


def measured(study: StudyResults) -> list[Configuration]:
    return [configuration for configuration in study.configurations if configuration.runs]


def label(configuration: Configuration, study: StudyResults) -> str:
    """The configuration's name, and what else tells it from the others of its study."""
    asked = configuration.asked
    varied = [
        key
        for key in asked
        if key not in DISTRIBUTION and len({str(other.asked.get(key)) for other in measured(study)}) > 1
    ]
    return ", ".join([configuration.name, *(f"{key}={asked[key]}" for key in varied)])


def families(study: StudyResults, baseline: str = "") -> list[Family]:
    """All families of ``study``. ``baseline`` chooses: ``none``, ``ddp``, a configuration's name, or ``key=value,…``.

    Raises ``unknown-baseline``.
    """
    if baseline and baseline not in TITLES:
        chosen = _chosen(study, baseline)
        others = tuple(one for one in measured(study) if one is not chosen)
        return [Family(study, "chosen", chosen, others)]
    found = [*_by_device(study), *_by_threads(study)]
    return [family for family in found if baseline in ("", family.kind)]


def check_baseline(baseline: str, points: Sequence[Point]) -> None:
    """Raises ``unknown-baseline`` before anything runs, if no configuration at ``points`` can be ``baseline``.

    How a configuration is called is known when it has run: a name is only checked for its form.
    """
    if not baseline or baseline in TITLES or ("=" not in baseline and "process" in baseline):
        return
    if not any(_has(dict(point), baseline) for point in points):
        named = "; ".join(",".join(f"{key}={value}" for key, value in point) for point in points[:8])
        raise RankupError(
            "unknown-baseline",
            f"no configuration of this grid is {baseline!r}",
            context=f"--baseline {baseline}",
            hint=f"none, ddp, or one of: {named}",
        )


def _has(asked: Mapping[str, object], text: str) -> bool:
    """Whether all of ``key=value,…`` hold."""
    pairs = [word.partition("=") for word in text.split(",")]
    return all(str(asked.get(key.strip())) == value.strip() for key, _, value in pairs)


def without_baseline(study: StudyResults, found: Iterable[Family]) -> list[Configuration]:
    """Those that are compared with nothing, and are not a baseline themselves."""
    compared = {id(one) for family in found for one in family.configurations}
    return [one for one in measured(study) if id(one) not in compared and not _one_device(one)]


def _by_device(study: StudyResults) -> Iterator[Family]:
    """Per series its baselines on one device; a series that has none is compared with the nearest that there is."""
    series = _groups(study, DISTRIBUTION)
    found: list[tuple[str, Configuration, list[Configuration]]] = []
    orphans = []
    for group in series:
        single = [one for one in group if _one_device(one)]
        if not single:
            orphans += group
        for first in _first_of_each_strategy(single):
            kind = _kind(first)
            others = [
                one for one in group if one is not first and not (kind == "ddp" and _kind(one) == "none")
            ]
            found.append((kind, first, others))
    for orphan in orphans:
        for kind in dict.fromkeys(kind for kind, _, _ in found):
            nearest = max(
                (entry for entry in found if entry[0] == kind), key=lambda entry: _in_common(entry[1], orphan)
            )
            nearest[2].append(orphan)
    for kind, first, others in sorted(found, key=lambda entry: list(TITLES).index(entry[0])):
        if others:
            yield Family(study, kind, first, tuple(others))


def _by_threads(study: StudyResults) -> Iterator[Family]:
    """What more cores per task bring: the same processes with the fewest of them are the baseline."""
    for group in _groups(study, frozenset({THREADS})):
        ordered = sorted(group, key=lambda one: one.runs[0].threads)
        if len(ordered) > 1 and THREADS in ordered[0].asked and ordered[0].runs[0].device_type == "cpu":
            yield Family(study, "threads", ordered[0], tuple(ordered[1:]))


def _groups(study: StudyResults, free: frozenset[str]) -> list[list[Configuration]]:
    """Configurations by the keys of the grid that are not ``free``."""
    groups: dict[tuple[tuple[str, str], ...], list[Configuration]] = {}
    for one in measured(study):
        key = tuple(sorted((k, str(v)) for k, v in one.asked.items() if k not in free))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _first_of_each_strategy(single: Sequence[Configuration]) -> list[Configuration]:
    return list({one.runs[0].strategy: one for one in reversed(single)}.values())[::-1]


def _one_device(one: Configuration) -> bool:
    return one.runs[0].processes == 1


def _kind(one: Configuration) -> str:
    strategy = one.runs[0].strategy
    return strategy if _one_device(one) and strategy in TITLES else "other"


def _in_common(one: Configuration, other: Configuration) -> int:
    return sum(other.asked.get(key) == value for key, value in one.asked.items())


def _chosen(study: StudyResults, text: str) -> Configuration:
    candidates = measured(study)
    for one in candidates:
        if text in (one.name, label(one, study)) or _has(one.asked, text):
            return one
    raise RankupError(
        "unknown-baseline",
        f"no configuration of this study is {text!r}",
        context=f"--baseline {text}",
        hint="none, ddp, or one of: " + "; ".join(label(one, study) for one in candidates),
    )
