"""The causes of a difference between two trainings. Each cause is a source of findings over a ``Comparison``.

The first cause of a table that applies is the answer. The last one always applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword

from rankup.findings.engine import Source
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.verify.evidence import (
    all_rows,
    gradients_pending,
    last_digits_only,
    not_restored,
    same_in_each_epoch,
    saved_but_other,
    suspects,
    weights_restored,
)
from rankup.verify.first_difference import LOSS, RANDOM, UNTRACKED, Difference
from rankup.verify.trace_reader import AttemptTrace

# If at least this part of the samples that differ occurs at other steps, the order is what differs.
FOUND_AGAIN = 0.5
NAMED = 3
COUNT_STEPS = (
    "the variable that decides the end starts again after a resume: count with run.global_step or the epoch's index; "
    "to count epochs without improvement, use values = run.register(bad=0) before the loop and values.bad in it"
)


@dataclass(frozen=True)
class Comparison:
    """An uninterrupted training and another one that differs from it: a repetition, or one that was ``resumed``.

    ``repeat`` is a second uninterrupted training, if there is one.
    """

    reference: AttemptTrace
    other: AttemptTrace
    difference: Difference
    resumed: bool
    repeat: AttemptTrace | None = None

    @property
    def evidence(self) -> str:
        first_names = what(self.difference)
        if not self.resumed:
            return f"two uninterrupted runs differ from each other, first in {first_names}"
        return f"uninterrupted runs are equal; this one differs first in {first_names}"

    @property
    def after_resume(self) -> str:
        """The evidence, and the number of steps since the resume."""
        text = f"{self.evidence}; it is step {self.difference.step - self.other.resumed_at} after the resume"
        if whole := weights_restored(self.reference, self.other):
            text += f"; right after the resume all {whole} tensors of the model were equal"
        return text

    def suspects(self) -> str:
        return suspects(self.reference, self.other, self.repeat)

    def found(self, code: str, message: str, why: str, fix: str) -> Finding:
        place = where(self.difference)
        return Finding(code, Severity.ERROR, message, place, why, fix, confidence=Confidence.LIKELY)


def _left(c: Comparison) -> Iterator[Finding]:
    if c.other.resumed_at == 0 and c.difference.attempt > 1:
        yield c.found(
            "left-by-a-killed-attempt",
            "what a killed attempt has left changes a training that begins from its first step",
            f"{c.evidence}; the attempt before it was killed before its first snapshot",
            "the script must not read what an earlier attempt of it has written, such as a checkpoint of its own or a "
            "counter in a file: rankup resumes the training",
        )


def _saving(c: Comparison) -> Iterator[Finding]:
    if c.other.resumed_at == 0:
        yield c.found(
            "saving-changes-training",
            "taking a snapshot changes the training, or the training is sometimes non-deterministic",
            f"{c.evidence}; this attempt had not resumed yet",
            "look for a state_dict that draws random numbers or changes its object; run verify again, to see whether "
            "uninterrupted runs stay equal",
        )


def _epoch_end(c: Comparison) -> Iterator[Finding]:
    if not c.difference.inputs_differ:
        return
    step, rank = c.difference.step, c.difference.rank
    expected = c.reference.steps[step][rank]["at"]
    if expected != c.other.steps[step][rank]["at"]:
        yield c.found(
            "other-end",
            "an epoch ends after another number of steps",
            f"{c.evidence}; the uninterrupted run is at (epoch, step) {_positions(expected)} at this point"
            f"{c.suspects()}",
            COUNT_STEPS,
        )


def _inputs(c: Comparison) -> Iterator[Finding]:
    """The samples differ: they come in another order, or they are other samples."""
    if not c.difference.inputs_differ:
        return
    step, rank, evidence = c.difference.step, c.difference.rank, c.evidence
    expected = c.reference.steps[step][rank]["rows"]
    seen = c.other.steps[step][rank]["rows"]
    strange = [row for row in seen if row not in expected]
    known = all_rows(c.reference)
    if rank > 0:
        evidence += f"; the samples of rank 0 are the same, those of rank {rank} are not"
    again = sum(row in known for row in strange)
    if seen != expected and seen and again >= FOUND_AGAIN * len(strange):
        yield c.found(
            "other-order",
            "the samples come in another order",
            f"{evidence}; {again} of the {len(strange)} samples that differ occur at other steps of the reference",
            "the data set must return the same sample for the same index each time: sort the files that it lists, and "
            "do not shuffle in it (prepare(…, shuffle=True) does)",
        )
    elif not c.resumed and same_in_each_epoch(c.reference) and not set(seen) & known:
        ranks = " and on each rank" if c.reference.world_size > 1 else ""
        yield c.found(
            "unseeded-data",
            f"each process makes other data: it differs between attempts{ranks}",
            f"{evidence}; within one run every epoch has the same samples, so this is not augmentation",
            "make the data after rankup.init(seed=…), or from a generator with a fixed seed; the data must not depend "
            "on the rank, the process, the time, or on files of an earlier attempt",
        )
    elif c.resumed:
        yield c.found(
            "data-begins-anew",
            "the samples depend on a variable that starts again after a resume",
            f"{evidence}; uninterrupted runs see the same samples; after the resume {len(strange)} of {len(seen)} "
            "differ",
            "a data set must return the same sample for the same index each time: count nothing in it, and draw from "
            "Python's, NumPy's or torch's global generator in __getitem__ (rankup seeds them per sample)",
        )
    else:
        yield c.found(
            "unseeded-augmentation",
            "samples differ in every run: augmentation draws from an unseeded generator, or depends on the time",
            f"{evidence}; of {len(seen)} samples {len(strange)} differ, and {again} of these occur at another step",
            "draw from Python's, NumPy's or torch's global generator in __getitem__ (rankup seeds them per sample), or "
            "from the SampleRandom that a transform of ResidentData gets; seed nothing from the time",
        )


def _seeds(c: Comparison) -> Iterator[Finding]:
    if RANDOM in c.difference.names:
        yield c.found(
            "unseeded-random",
            "the script seeds the generators itself, with another number each time",
            f"{c.evidence}; the samples are the same, but the states of the global generators differ",
            "let rankup.init(seed=…) seed the generators: it seeds Python, NumPy and torch, on all ranks",
        )


def _unseeded_model(c: Comparison) -> Iterator[Finding]:
    """The weights differ where the loop began, before any step of it."""
    step = max((at for at in c.reference.starts if at < c.difference.step), default=None)
    if step is None or step not in c.other.starts:
        return
    mine, theirs = (attempt.starts[step]["state"] for attempt in (c.reference, c.other))
    if names := [name for name in mine if "model/" in name and theirs.get(name) != mine[name]]:
        listed = ", ".join(names[:NAMED])
        yield c.found(
            "unseeded-model",
            "the script begins with other weights in each run",
            f"{c.evidence}; before the first step {len(names)} of the model's tensors differ already: {listed}",
            "build the model after rankup.init(seed=…), which seeds the generators; weights that are read from a file "
            "must not be those that an earlier run has written",
        )


def _not_deterministic(c: Comparison) -> Iterator[Finding]:
    place = (
        "the loss differs, so the cause is in the forward pass, or in random numbers in it"
        if c.difference.first == LOSS
        else "the loss is the same, so the cause is in the backward pass or the optimizer"
    )
    yield c.found(
        "not-deterministic",
        "a non-deterministic kernel, or a number that differs in each run",
        f"{c.evidence}; the samples are the same, and so are the global generators; {place}",
        "draw from the global generators, which rankup seeds and saves; do not use os.urandom, the time, the order of "
        "a set of strings, or files of an earlier run; for kernels use --deterministic, or "
        "torch.use_deterministic_algorithms(True) in a script",
    )


def _unregistered(c: Comparison) -> Iterator[Finding]:
    names = [name.removeprefix(UNTRACKED) for name in c.difference.names if name.startswith(UNTRACKED)]
    if lost := not_restored(c.reference, c.other) or names:
        listed = ", ".join(map(held, lost[:NAMED]))
        yield c.found(
            "state-not-in-snapshot",
            f"some state is not in the snapshot: {listed}",
            f"{c.after_resume}; {listed} has a state, and is not registered",
            how_to_register(lost),
        )


def _pending_gradients(c: Comparison) -> Iterator[Finding]:
    if kept_open := gradients_pending(c.reference, c.other):
        yield c.found(
            "pending-gradients",
            "the script accumulates gradients by hand, and the snapshot does not hold them",
            f"{c.after_resume}; the snapshot was taken after step {kept_open}; gradients remained then, and the "
            "optimizer had not stepped",
            "use prepare(…, accumulate=N) with run.backward(loss) and run.step(opt): then snapshots are taken only "
            "after the optimizer's step",
        )


def _reduction_order(c: Comparison) -> Iterator[Finding]:
    if last_digits_only(c.reference, c.other, c.difference):
        yield c.found(
            "reduction-order",
            "the order of the sums over the ranks changes after a resume",
            f"{c.after_resume}; there are {c.reference.world_size} processes, the loss of that step is the same, and "
            "the weights differ in their last digits only",
            "the script is not the cause: report this, with the versions of torch and of rankup; "
            'exact="any-world" sums in a fixed order',
        )


def _not_brought_back(c: Comparison) -> Iterator[Finding]:
    if lost := saved_but_other(c.reference, c.other):
        listed = ", ".join(lost[:NAMED])
        yield c.found(
            "state-not-in-snapshot",
            f"a resume does not restore some state: {listed}",
            f"{c.after_resume}; right after the resume {listed} differed from the saved state",
            "code between init and the loop must not change a model, its optimizer or a registered object again after "
            "a resume; load_state_dict must restore everything that state_dict returns",
        )


def _unsaved_variable(c: Comparison) -> Iterator[Finding]:
    yield c.found(
        "unsaved-variable",
        "the training depends on a variable of the script that starts again after a resume: a number, a tensor, or a "
        "generator",
        c.after_resume + c.suspects(),
        "for numbers, use values = run.register(best=0.0) before the loop and values.best in it; for lists, dicts, "
        "tensors, generators and objects with a state_dict, run.register(name=thing); count steps with run.global_step",
    )


REPEAT_CAUSES: Mapping[str, Source[Comparison]] = {
    "unseeded-model": _unseeded_model,
    "inputs": _inputs,
    "unseeded-random": _seeds,
    "not-deterministic": _not_deterministic,
}
RESUME_CAUSES: Mapping[str, Source[Comparison]] = {
    "left-by-a-killed-attempt": _left,
    "saving-changes-training": _saving,
    "other-end": _epoch_end,
    "inputs": _inputs,
    "unregistered": _unregistered,
    "pending-gradients": _pending_gradients,
    "reduction-order": _reduction_order,
    "not-brought-back": _not_brought_back,
    "unsaved-variable": _unsaved_variable,
}


def _positions(at: list[list[int]]) -> str:
    return ", ".join(f"({epoch + 1}, {step})" for epoch, step in at)


def held(name: str) -> str:
    """``"AveragedModel average"`` → ``"AveragedModel (average)"``."""
    kind, _, variable = name.partition(" ")
    return f"{kind} ({variable})" if variable else kind


def how_to_register(names: list[str]) -> str:
    """Code that can be pasted: an item is registered under its variable and key, ``tensors_0=data.tensors[0]``."""
    words = []
    for name in names[:NAMED]:
        kind, _, variable = name.partition(" ")
        kind = kind.partition("-")[0]
        variable = variable.partition("-")[0]
        short = re.sub(r"\W+", "_", re.split(r"\.(?![^\[]*\])", variable)[-1]).strip("_")
        if not short.isidentifier() or iskeyword(short):
            short = kind.lower()
        words.append(f"run.register({short}={variable or '…'}) before the loop")
    return "; ".join(words)


def where(difference: Difference) -> str:
    if difference.at_end:
        return f"after the last step ({difference.step})"
    in_epoch = [f"epoch {epoch + 1}, step {step}" for epoch, step in difference.epochs if step]
    place = f" ({'; '.join(in_epoch)})" if in_epoch else ""
    rank = f", on rank {difference.rank}" if difference.rank else ""
    return f"at step {difference.step}{place}{rank}"


def what(difference: Difference) -> str:
    """The first names that differ, and how many more there are."""
    names = [
        f"{held(name.removeprefix(UNTRACKED))} (not registered)" if name.startswith(UNTRACKED) else name
        for name in difference.names
    ]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
