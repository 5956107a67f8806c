"""Where a script without ``run.steps`` is interrupted: the kinds, and a point of each that its uninterrupted training
has. It takes data and returns data."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rankup.verify.trace_reader import AttemptTrace, Record


@dataclass(frozen=True)
class Interruption:
    """``value``: of RANKUP_INTERRUPT. ``text``: in words, with ``{step}``. ``signal``: that is sent before SIGKILL.
    ``file``: the name of a save's file that was not yet written when others were."""

    kind: str
    step: int
    value: str
    text: str
    signal: int = 0
    file: str = ""

    @property
    def place(self) -> str:
        return self.at(self.step)

    def at(self, step: int) -> str:
        """In words, where the training really was."""
        return self.text.format(step=step)


class Kind(NamedTuple):
    """``point``: of the trace, after a save at this step if it is possible; None if the training has no such point.
    ``words``: for people, without a step."""

    name: str
    words: str
    point: Callable[[AttemptTrace, int], Interruption | None]


def saves(trace: AttemptTrace) -> list[int]:
    """The steps after which the script saves."""
    return sorted({step for step, _, record in _between(trace) if record.get("saved") and step > 0})


def _kinds(first: AttemptTrace, *, shortened: bool) -> list[Kind]:
    """Those that apply to this training."""
    return [kind for kind in KINDS if not (shortened and kind.name in AT_THE_END) and kind.point(first, 0)]


def left_out(first: AttemptTrace, wanted: int | None, *, shortened: bool = False) -> list[str]:
    """In words, the kinds that apply to this training and that ``choose`` does not take."""
    return [kind.words for kind in _kinds(first, shortened=shortened)[wanted:]] if wanted is not None else []


def choose(
    first: AttemptTrace, wanted: int | None, *, shortened: bool = False, without: str = ""
) -> list[Interruption]:
    """So many, the first rows of ``KINDS`` first; None: one of each kind, and one after a step for the second save. In
    the order of the training, each after another save. ``shortened``: the training has no end of its own. ``without``:
    not this kind."""
    kinds = [kind for kind in _kinds(first, shortened=shortened) if kind.name != without]
    if wanted is not None:
        more = [KINDS[0]] * max(0, wanted - len(kinds))
        kinds = [*kinds[:wanted], *more]
    inside = [step for step in saves(first) if step + 2 < first.final_step]
    spread = [kind for kind in SPREAD if kind in {each.name for each in kinds}]
    spread += [KINDS[0].name] * (len(kinds) - len({*kinds}))
    by_name = {kind.name: kind for kind in KINDS}
    found: list[Interruption] = []
    for number, name in enumerate(spread):
        after = (
            inside[number * len(inside) // len(spread)]
            if inside
            else first.final_step * number // len(spread)
        )
        found.append(by_name[name].point(first, after))  # type: ignore[arg-type]
    if wanted is None and len(inside) > 1:
        # What is saved every second time only is stale in one of two saves that follow each other. Before a signal: a
        # process may train on until it arrives.
        found.insert(0, by_name["step"].point(first, inside[1]))  # type: ignore[arg-type]
    found = sorted((each for each in found if each is not None), key=lambda each: each.step)
    ends = [each for kind in kinds if kind.name in AT_THE_END and (each := kind.point(first, 0)) is not None]
    return [*dict.fromkeys([*found, *sorted(ends, key=lambda each: each.kind == "exit")])]


def _between(trace: AttemptTrace) -> Iterator[tuple[int, int, Record]]:
    """(step, rank, record that tells what happened after this step and before the next one)."""
    for step, ranks in sorted(trace.steps.items()):
        yield from ((step - 1, rank, record) for rank, record in sorted(ranks.items()))
    yield from ((trace.final_step, rank, record) for rank, record in sorted(trace.exit.items()))


def _next(trace: AttemptTrace, after: int, has: Callable[[Record], bool]) -> tuple[int, int, Record] | None:
    """The first point after a step that ``has`` it, else the last one at all, of those between two steps if there are
    any."""
    every = [point for point in _between(trace) if point[0] > 0 and has(point[2])]
    inside = [point for point in every if point[0] < trace.final_step] or every
    return next((point for point in inside if point[0] > after), inside[-1] if inside else None)


def _step(trace: AttemptTrace, after: int) -> Interruption | None:
    at = min(after + 2, max(1, trace.final_step - 1))
    return Interruption("step", at, f"step {at} {trace.world_size - 1}", "killed after step {step}")


def _end(trace: AttemptTrace, _: int) -> Interruption | None:
    at = trace.final_step
    return Interruption("end", at, f"step {at} {trace.world_size - 1}", "killed after the last step ({step})")


def _exit(trace: AttemptTrace, _: int) -> Interruption | None:
    at = trace.final_step
    return Interruption("exit", at, f"exit {at} 0", "killed after the last line of the script")


def _writing(trace: AttemptTrace, after: int) -> Interruption | None:
    found = _next(trace, after, lambda record: any(size > 1 for _, size in record.get("saves", ())))
    if found is None:
        return None
    step, _, _ = found
    every = [(rank, record["saves"]) for at, rank, record in _between(trace) if at == step]
    _, rank, number, name = max(
        (size, -rank, number, name) for rank, made in every for number, (name, size) in enumerate(made, 1)
    )
    text = f"killed in a save after step {{step}}, when half of {_plain(name)} was written"
    return Interruption("writing", step, f"writing {step} {-rank} {number}", text)


def _between_files(trace: AttemptTrace, after: int) -> Interruption | None:
    """Before the last file of a save gets its name, when another one has got it."""
    found = _next(trace, after, lambda record: len(_published(record)) > 1)
    if found is None:
        return None
    step, rank, record = found
    last = _published(record)[-1]
    name = record["changes"][last][-1].rpartition("/")[2]
    text = f"killed in a save after step {{step}}, before {_plain(name)} was written"
    return Interruption("between", step, f"between {step} {rank} {last + 1}", text, file=name)


def _published(record: Record) -> list[int]:
    """Which changes on disk leave a file under the name that it keeps."""
    changes = record.get("changes", ())
    renamed = {(change[0], number) for number, change in enumerate(changes) if len(change) > 1}
    return [
        number
        for number, change in enumerate(changes)
        if len(change) > 1 or not any(old == change[0] and later > number for old, later in renamed)
    ]


def _evaluation(trace: AttemptTrace, after: int) -> Interruption | None:
    found = _next(trace, after, lambda record: record.get("evaluated", 0) > 0)
    if found is None:
        return None
    step, _, record = found
    middle = (record["evaluated"] + 1) // 2
    value = _on_all_ranks(trace, f"evaluation {step}", f" {middle}")
    return Interruption("evaluation", step, value, "killed in an evaluation after step {step}")


def _epoch(trace: AttemptTrace, after: int) -> Interruption | None:
    found = _next(trace, after, lambda record: bool(record.get("epoch_end")))
    if found is None:
        return None
    step = found[0]
    return Interruption(
        "epoch", step, _on_all_ranks(trace, f"epoch {step}"), "killed at an epoch's end, after step {step}"
    )


def _signalled(number: signal.Signals) -> Callable[[AttemptTrace, int], Interruption | None]:
    def point(trace: AttemptTrace, after: int) -> Interruption | None:
        step = _step(trace, after)
        if step is None or trace.final_step < 3:
            return None
        rank = trace.world_size - 1
        # A script that does not end is killed before its last step, so that something is left to resume.
        value = f"signal {step.step} {rank} {number.value};step {trace.final_step - 1} {rank}"
        return Interruption(number.name, step.step, value, f"{number.name} after step {{step}}", number.value)

    return point


def _on_all_ranks(trace: AttemptTrace, point: str, more: str = "") -> str:
    """So that no rank goes on to save what the others have not reached."""
    return ";".join(f"{point} {rank}{more}" for rank in range(trace.world_size))


def _plain(name: str) -> str:
    return name.replace("{", "").replace("}", "")


KINDS = (
    Kind("step", "a kill after a step", _step),
    Kind("exit", "a kill after the last line of the script", _exit),
    Kind("writing", "a kill in a save", _writing),
    Kind("between", "a kill between the files of a save", _between_files),
    Kind("evaluation", "a kill in an evaluation", _evaluation),
    Kind("epoch", "a kill at an epoch's end", _epoch),
    Kind("SIGTERM", "SIGTERM", _signalled(signal.SIGTERM)),
    Kind("SIGUSR1", "SIGUSR1", _signalled(signal.SIGUSR1)),
    Kind("end", "a kill after the last step", _end),
)
AT_THE_END = ("end", "exit")
KINDS_IN_A_SAVE = ("writing", "between")
SPREAD = (
    "step",
    "epoch",
    "evaluation",
    "writing",
    "between",
    "SIGUSR1",
    "SIGTERM",
)  # in this order over the training
