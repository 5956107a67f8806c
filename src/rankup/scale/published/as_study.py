"""The rows of a table as the results of a study, so that a published table is judged as one of our own is."""

from __future__ import annotations

from dataclasses import dataclass

from rankup.scale.families import Family, measured
from rankup.scale.published.table import Entry, Table
from rankup.scale.results import Configuration, Measured, StudyResults

# Of rates alone: every row trains as many samples. It is never shown.
_SAMPLES = 10**6


@dataclass(frozen=True)
class Published:
    """``study`` has a configuration for each row; ``entry_of`` tells which."""

    study: StudyResults
    entries: dict[int, Entry]

    def entry_of(self, one: Configuration) -> Entry:
        return self.entries[id(one)]


def as_study(table: Table) -> Published:
    """Weak scaling where every device has the same batch, and rates or times of steps are told."""
    weak = table.metric != "time" and _same_local_batch(table)
    made = [(_configuration(entry, table, weak), entry) for entry in table.entries]
    study = StudyResults(table.name, "weak" if weak else "strong", [one for one, _ in made], {}, repeats=0)
    return Published(study, {id(one): entry for one, entry in made})


def fewest_devices(study: StudyResults) -> list[Family]:
    """Of a table without a row of one device: what its other rows may have been compared with."""
    ordered = sorted(measured(study), key=lambda one: one.runs[0].devices)
    return [Family(study, "chosen", ordered[0], tuple(ordered[1:]))] if len(ordered) > 1 else []


def _same_local_batch(table: Table) -> bool:
    """Whether the global batch grows with the devices."""
    batches = [(float(entry.facts.get("global_batch", 0)), entry.devices) for entry in table.entries]
    return len({batch / devices for batch, devices in batches}) == 1 < len({batch for batch, _ in batches})


def _configuration(entry: Entry, table: Table, weak: bool) -> Configuration:
    value, batch = entry.value.value, int(entry.facts.get("global_batch", 0))
    samples, seconds = int(entry.facts.get("samples", 0)), value
    if table.metric == "rate":
        samples, seconds = _SAMPLES, _SAMPLES / value
    elif table.metric == "step-time":
        samples = batch
    # What a row says of its work tells series apart, as the keys of a grid do: each is compared within its own.
    asked: dict[str, str | int] = {"nodes": entry.nodes, "nproc": entry.devices // entry.nodes}
    asked |= {
        key: str(told)
        for key, told in entry.facts.items()
        if key not in ("samples", "steps", "strategy") and not (weak and key == "global_batch")
    }
    run = Measured(
        repeat=1,
        seconds=seconds,
        samples=samples,
        steps=int(entry.facts.get("steps", 0)),
        nodes=entry.nodes,
        processes=entry.devices,
        threads=1,
        strategy=str(entry.facts.get("strategy", "")),
        device_type="cuda",
        accuracy=entry.accuracy.value if entry.accuracy else None,
        facts={key: told for key, told in entry.facts.items() if key not in ("samples", "steps")},
    )
    return Configuration(asked, [run])
