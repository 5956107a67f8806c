"""What a script writes of its clocks, and so is another number after an interruption.

Most times differ between two uninterrupted trainings already, and are left out. A rounded one may not: "3 s" is "3 s".
So where a file or a printed number is another one after a resume, the training is repeated once more with clocks that
run faster: what is another number then as well is a time.
"""

from __future__ import annotations

from dataclasses import replace

from rankup.errors import RankupError
from rankup.verify.files import Digests, clocklike, other_files, other_numbers, short
from rankup.verify.first_difference import first_difference, other_end, unsteady
from rankup.verify.scenario import Reference, Trial
from rankup.verify.trace_reader import AttemptTrace

_FASTER = {"RANKUP_CLOCK": "61"}  # runtime/tracing/startup/sitecustomize.py


def without_times(
    trial: Trial, reference: Reference, resumed: AttemptTrace, files: Digests
) -> tuple[Reference, tuple[str, ...]]:
    """The reference beside which times are no difference, and what is not compared for that reason. The same one if
    nothing that the ``resumed`` training wrote or printed differs, or if its steps depend on a clock."""
    first = reference.first
    line = other_numbers(first.printed, reference.again.printed, resumed.printed)
    if line is None and not other_files(*reference.files, files):
        return reference, ()
    try:
        faster = trial.uninterrupted("uninterrupted, with a faster clock", env=_FASTER)
    except RankupError:  # it does not stand faster clocks, or a signal from outside has ended it
        trial.files.put_back()
        return reference, ()
    wrote = trial.files.after_training()
    ignore = reference.ignore | unsteady(first, faster)
    if first_difference(first, [faster], ignore=ignore) is not None or other_end(first, [faster]) is not None:
        return reference, ()
    timed = _either(reference, faster, wrote)
    before = clocklike(*reference.files)
    left = [path for path in clocklike(*timed.files) if path not in before]
    if line is not None and other_numbers(first.printed, timed.again.printed, resumed.printed) != line:
        left.append(f"the line {line[0]!r}")
    return timed, tuple(map(short, ([each] for each in left)))


def _either(reference: Reference, faster: AttemptTrace, wrote: Digests) -> Reference:
    """Where the second training differs from the first one, it; where it does not, the third one."""
    (first, again), trace = reference.files, reference.again
    other = {key for key in first.keys() | again.keys() if first.get(key) != again.get(key)}
    files = {key: digest for key, digest in wrote.items() if key not in other}
    files |= {key: again[key] for key in other if key in again}
    lines = zip(*map(reversed, (reference.first.printed, trace.printed, faster.printed)), strict=False)
    printed = [third if one == two else two for one, two, third in lines]
    return replace(reference, again=replace(trace, printed=tuple(reversed(printed))), files=(first, files))
