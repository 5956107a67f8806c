"""What a difference most likely comes from, judged by the evidence in the traces. It takes data and returns data."""

from __future__ import annotations

from rankup.core.findings import Confidence, Finding, Severity
from rankup.verify.compare import LOSS, UNKEPT, Difference
from rankup.verify.recorded import Attempt, Record

# Of the samples that differ, how many must be found at other steps for the order to be what differs.
FOUND_AGAIN = 0.5
_NAMED = 3


def of_reference(reference: Attempt, again: Attempt, difference: Difference) -> Finding:
    """Two uninterrupted trainings differ from each other: nothing of it is the snapshots' fault."""
    evidence = f"two uninterrupted runs differ from each other, first in {what(difference)}"
    mine = reference.steps[difference.step][difference.rank]
    theirs = again.steps[difference.step][difference.rank]
    if difference.inputs_differ:
        return _inputs(reference, again, difference, evidence)
    if mine["random"] != theirs["random"]:
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
        "a non-deterministic kernel, or random numbers from a generator that nobody seeds",
        difference,
        f"{evidence}; the samples are the same, and so are the global generators; {place}",
        "draw from the global generators, which rankup seeds and saves, and not from os.urandom or the time; for "
        "kernels: --deterministic, or torch.use_deterministic_algorithms(True) in a script",
    )


def of_resume(reference: Attempt, attempt: Attempt, difference: Difference) -> Finding:
    """Uninterrupted trainings are equal, and the interrupted one differs from them."""
    evidence = f"uninterrupted runs are equal; this one differs first in {what(difference)}"
    if attempt.resumed_at == 0:
        return _finding(
            "saving-changes-training",
            "taking a snapshot changes the training, or it is non-deterministic now and then",
            difference,
            f"{evidence}; this attempt had resumed from nothing yet",
            "a state_dict that draws random numbers or changes its object does so; run verify once more, with more "
            "steps, to see whether uninterrupted runs stay equal",
        )
    if difference.inputs_differ:
        return _inputs(reference, attempt, difference, evidence)
    evidence += f"; it is step {difference.step - attempt.resumed_at} after the resume"
    if whole := _weights_restored(reference, attempt):
        evidence += f"; right after the resume all {whole} tensors of the model were equal"
    names = [name.removeprefix(UNKEPT) for name in difference.names if name.startswith(UNKEPT)]
    if lost := _not_restored(reference, attempt) or names:
        keep = ", ".join(f"{name.partition('-')[0].lower()}=…" for name in lost[:_NAMED])
        return _finding(
            "state-not-in-snapshot",
            f"state that is not in the snapshot: {', '.join(lost[:_NAMED])}",
            difference,
            f"{evidence}; {', '.join(lost[:_NAMED])} has a state_dict, and nobody keeps it",
            f"run.register({keep}) before the loop",
        )
    return _finding(
        "state-not-in-snapshot",
        "state that is not in the snapshot: something that the training goes by begins anew after a resume",
        difference,
        evidence,
        "an average, a counter, a schedule, a generator of its own: give it state_dict and load_state_dict, and "
        "run.register(name=it) before the loop",
    )


def _inputs(reference: Attempt, other: Attempt, difference: Difference, evidence: str) -> Finding:
    """The samples differ: the same ones in another order, or other ones."""
    expected = reference.steps[difference.step][difference.rank]["rows"]
    seen = other.steps[difference.step][difference.rank]["rows"]
    strange = [row for row in seen if row not in expected]
    known = _rows(reference)
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
    return _finding(
        "unseeded-augmentation",
        "samples that are never the same: augmentation that draws from an unseeded generator, or from one that a "
        "resume begins anew",
        difference,
        f"{evidence}; of {len(seen)} samples {len(strange)} are others, and {again} of these stand at another step",
        "draw from Python's, NumPy's or torch's global generator in __getitem__ (rankup seeds them per sample), or "
        "from the SampleRandom that a transform of ResidentData gets; seed nothing from the time",
    )


def _rows(attempt: Attempt) -> set[str]:
    return {row for ranks in attempt.steps.values() for record in ranks.values() for row in record["rows"]}


def _weights_restored(reference: Attempt, attempt: Attempt) -> int:
    """How many tensors of the model the resume brought back as the reference had them; 0 where one is not so."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return 0
    before, after = ({n: h for n, h in record["state"].items() if "model/" in n} for record in pair)
    return len(before) if before == after else 0


def _not_restored(reference: Attempt, attempt: Attempt) -> list[str]:
    """What nobody keeps and was not as the reference had it when the attempt went on."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return []
    before, after = pair
    return [name for name, was in before["unkept"].items() if after["unkept"].get(name, was) != was]


def _at_resume(reference: Attempt, attempt: Attempt) -> tuple[Record, Record] | None:
    before = reference.steps.get(attempt.resumed_at, {}).get(0)
    return (before, attempt.begin[0]) if before is not None else None


def where(difference: Difference) -> str:
    if difference.at_end:
        return f"behind the last step ({difference.step})"
    in_epoch = [f"epoch {epoch + 1}, step {step}" for epoch, step in difference.epochs if step]
    place = f" ({'; '.join(in_epoch)})" if in_epoch else ""
    rank = f", on rank {difference.rank}" if difference.rank else ""
    return f"at step {difference.step}{place}{rank}"


def what(difference: Difference) -> str:
    """The first names that differ, and how many more there are."""
    names = [
        f"{name.removeprefix(UNKEPT)} (not kept)" if name.startswith(UNKEPT) else name
        for name in difference.names
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _finding(code: str, message: str, difference: Difference, why: str, fix: str) -> Finding:
    return Finding(
        code, Severity.ERROR, message, place=where(difference), why=why, fix=fix, confidence=Confidence.LIKELY
    )
