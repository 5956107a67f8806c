"""What a difference most likely comes from, judged by the evidence in the traces. It takes data and returns data."""

from __future__ import annotations

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
from rankup.verify.first_difference import LOSS, RANDOM, UNKEPT, Difference
from rankup.verify.trace_reader import AttemptTrace

# Of the samples that differ, how many must be found at other steps for the order to be what differs.
FOUND_AGAIN = 0.5
_NAMED = 3
_COUNT = (
    "what decides the end begins anew after a resume: count with run.global_step, or with the epoch's index; "
    "run.register(bad=0) before the loop and run.values.bad in it, for what waits for an improvement"
)


def of_reference(reference: AttemptTrace, again: AttemptTrace, difference: Difference) -> Finding:
    """Two uninterrupted trainings differ from each other: nothing of it is the snapshots' fault."""
    evidence = f"two uninterrupted runs differ from each other, first in {what(difference)}"
    if difference.inputs_differ:
        return _inputs(reference, again, difference, evidence)
    if RANDOM in difference.names:
        return _finding(
            "unseeded-random",
            "the script seeds the generators itself, with another number each time",
            difference,
            f"{evidence}; the samples are the same and the states of the global generators are not",
            "leave seeding to rankup.init(seed=…): it seeds Python, NumPy and torch, on all ranks",
        )
    place = (
        "the loss differs already: the forward pass, or random numbers in it"
        if difference.first == LOSS
        else "the loss is the same and what came of it is not: the backward pass or the optimizer"
    )
    return _finding(
        "not-deterministic",
        "a non-deterministic kernel, or a number that is another one in each run",
        difference,
        f"{evidence}; the samples are the same, and so are the global generators; {place}",
        "draw from the global generators, which rankup seeds and saves; use neither os.urandom nor the time, no order "
        "of a set of strings, and no file that an earlier run has left; for kernels: --deterministic, or "
        "torch.use_deterministic_algorithms(True) in a script",
    )


def of_resume(
    reference: AttemptTrace, attempt: AttemptTrace, difference: Difference, again: AttemptTrace | None = None
) -> Finding:
    """Uninterrupted trainings are equal, and the interrupted one differs from them. ``again``: the second of them."""
    evidence = f"uninterrupted runs are equal; this one differs first in {what(difference)}"
    if attempt.resumed_at == 0:
        return _finding(
            "saving-changes-training",
            "taking a snapshot changes the training, or it is non-deterministic now and then",
            difference,
            f"{evidence}; this attempt had resumed from nothing yet",
            "a state_dict that draws random numbers or changes its object does so, and so does a file that an earlier "
            "attempt has left; run verify once more, to see whether uninterrupted runs stay equal",
        )
    if difference.inputs_differ:
        expected = reference.steps[difference.step][difference.rank]["at"]
        if expected != attempt.steps[difference.step][difference.rank]["at"]:
            return _finding(
                "other-end",
                "an epoch ends after another number of steps",
                difference,
                f"{evidence}; the uninterrupted run is at (epoch, step) {_positions(expected)} then"
                f"{suspects(reference, attempt, again)}",
                _COUNT,
            )
        return _inputs(reference, attempt, difference, evidence, resumed=True)
    evidence += f"; it is step {difference.step - attempt.resumed_at} after the resume"
    whole = weights_restored(reference, attempt)
    if whole:
        evidence += f"; right after the resume all {whole} tensors of the model were equal"
    names = [name.removeprefix(UNKEPT) for name in difference.names if name.startswith(UNKEPT)]
    if lost := not_restored(reference, attempt) or names:
        return _finding(
            "state-not-in-snapshot",
            f"state that is not in the snapshot: {', '.join(map(held, lost[:_NAMED]))}",
            difference,
            f"{evidence}; {', '.join(map(held, lost[:_NAMED]))} has a state, and is not registered",
            how_to_register(lost),
        )
    if kept_open := gradients_pending(reference, attempt):
        return _finding(
            "pending-gradients",
            "gradients that were accumulated by hand when the snapshot was taken, and are not in it",
            difference,
            f"{evidence}; at step {kept_open}, after which the snapshot was taken, gradients remained and the "
            "optimizer had not stepped",
            "prepare(…, accumulate=N) with run.backward(loss) and run.step(opt): snapshots are then taken after whole "
            "windows only",
        )
    if last_digits_only(reference, attempt, difference):
        return _finding(
            "reduction-order",
            "the sums over the ranks are taken in another order after a resume",
            difference,
            f"{evidence}; there are {reference.world_size} processes, the loss of that step is the same, and the "
            "weights differ in their last digits only",
            "nothing in the script does this: report it, with the versions of torch and of rankup; "
            'exact="any-world" sums in a fixed order',
        )
    if lost := saved_but_other(reference, attempt):
        return _finding(
            "state-not-in-snapshot",
            f"state that a resume does not bring back: {', '.join(lost[:_NAMED])}",
            difference,
            f"{evidence}; right after the resume {', '.join(lost[:_NAMED])} differed from what it was",
            "what changes a model, its optimizer or what is registered between init and the loop must not run again "
            "after a resume; a load_state_dict must bring back all that state_dict gave",
        )
    return _finding(
        "unsaved-variable",
        "something that the training goes by begins anew after a resume, and it is a plain variable, a tensor, or a "
        "generator of the script's own",
        difference,
        evidence + suspects(reference, attempt, again),
        "run.register(best=0.0) before the loop and run.values.best in it, for numbers; run.register(name=thing) for "
        "lists, dicts, tensors, generators and anything with a state_dict; count steps with run.global_step",
    )


def _positions(at: list[list[int]]) -> str:
    return ", ".join(f"({epoch + 1}, {step})" for epoch, step in at)


def of_end(
    reference: AttemptTrace, other: AttemptTrace, again: AttemptTrace | None = None, *, repeated: bool = False
) -> Finding:
    """It trains another number of steps."""
    resumed = f", resumed at step {other.resumed_at}," if not repeated else ", uninterrupted as well,"
    return Finding(
        "other-end",
        Severity.ERROR,
        f"the training ends after step {other.final_step} instead of {reference.final_step}",
        place=f"after step {min(other.final_step, reference.final_step)}",
        why=f"the uninterrupted training ends after step {reference.final_step}; this one{resumed} after step "
        f"{other.final_step}, and all steps that both have trained are equal{suspects(reference, other, again)}",
        fix=_COUNT
        if not repeated
        else "the end depends on the time, on a file or on numbers that nobody seeds",
        confidence=Confidence.LIKELY,
    )


def of_untracked(reference: AttemptTrace, names: list[str]) -> Finding:
    """State that changes and is not registered, even if no step shows it."""
    listed = ", ".join(map(held, names[:_NAMED]))
    return Finding(
        "unregistered-state",
        Severity.ERROR,
        f"{listed} {'has' if len(names) == 1 else 'have'} state that changes and is not registered",
        why="it is not the same at the beginning and at the end of the uninterrupted training, it is in no snapshot, "
        "and no resume was seen to bring it back: a resume begins it anew",
        fix=how_to_register(names),
    )


def held(name: str) -> str:
    """``"AveragedModel average"`` → ``"AveragedModel (average)"``."""
    kind, _, variable = name.partition(" ")
    return f"{kind} ({variable})" if variable else kind


def how_to_register(names: list[str]) -> str:
    words = []
    for name in names[:_NAMED]:
        kind, _, variable = name.partition(" ")
        kind = kind.partition("-")[0]
        variable = variable.partition("-")[0]
        short = variable.rpartition(".")[2] or kind.lower()
        words.append(f"run.register({short}={variable or '…'}) before the loop")
    return "; ".join(words)


def _inputs(
    reference: AttemptTrace,
    other: AttemptTrace,
    difference: Difference,
    evidence: str,
    *,
    resumed: bool = False,
) -> Finding:
    """The samples differ: the same ones in another order, or other ones."""
    expected = reference.steps[difference.step][difference.rank]["rows"]
    seen = other.steps[difference.step][difference.rank]["rows"]
    strange = [row for row in seen if row not in expected]
    known = all_rows(reference)
    if difference.rank > 0:
        evidence += f"; the samples of rank 0 are the same, those of rank {difference.rank} are not"
    again = sum(row in known for row in strange)
    if seen != expected and seen and again >= FOUND_AGAIN * len(strange):
        return _finding(
            "other-order",
            "the samples come in another order",
            difference,
            f"{evidence}; {again} of the {len(strange)} that the reference did not see at this step, it saw at others",
            "the data set must give the same sample for the same index each time: sort what it lists, and shuffle "
            "nothing in it (prepare(…, shuffle=True) does)",
        )
    if not resumed and same_in_each_epoch(reference) and not set(seen) & known:
        ranks = " and on each rank" if reference.world_size > 1 else ""
        return _finding(
            "unseeded-data",
            f"the data is made anew in each process: it differs between attempts{ranks}",
            difference,
            f"{evidence}; within one run every epoch has the same samples, so that nothing augments them",
            "make the data after rankup.init(seed=…), or from a generator with a fixed seed; nothing of it may depend "
            "on the rank, the process, the time, or what an earlier attempt has written",
        )
    if resumed:
        return _finding(
            "data-begins-anew",
            "the samples depend on something that a resume begins anew",
            difference,
            f"{evidence}; uninterrupted runs see the same samples; after the resume {len(strange)} of {len(seen)} are "
            "others",
            "a data set must give the same sample for the same index, however often it was asked: count nothing in it, "
            "and draw from Python's, NumPy's or torch's global generator in __getitem__ (rankup seeds them per sample)",
        )
    return _finding(
        "unseeded-augmentation",
        "samples that are never the same: augmentation that draws from an unseeded generator, or goes by the time",
        difference,
        f"{evidence}; of {len(seen)} samples {len(strange)} are others, and {again} of these are at another step",
        "draw from Python's, NumPy's or torch's global generator in __getitem__ (rankup seeds them per sample), or "
        "from the SampleRandom that a transform of ResidentData gets; seed nothing from the time",
    )


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
        f"{held(name.removeprefix(UNKEPT))} (not registered)" if name.startswith(UNKEPT) else name
        for name in difference.names
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _finding(code: str, message: str, difference: Difference, why: str, fix: str) -> Finding:
    return Finding(
        code, Severity.ERROR, message, place=where(difference), why=why, fix=fix, confidence=Confidence.LIKELY
    )
