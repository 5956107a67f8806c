"""The most likely cause of a difference, judged by the evidence in the traces. It takes data and returns data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rankup.errors import RankupError
from rankup.findings.engine import Source, first
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.verify.causes import (
    COUNT_STEPS,
    NAMED,
    REPEAT_CAUSES,
    RESUME_CAUSES,
    Comparison,
    held,
    how_to_register,
)
from rankup.verify.evidence import suspects
from rankup.verify.first_difference import Difference
from rankup.verify.trace_reader import AttemptTrace
from rankup.verify.two_files import TwoFiles

STATE_LOST = "state-lost"  # the error of a resume that would lose state
_WRITTEN_ANY = (
    "the model is the same, and what the script keeps beside it is not: a best value, a history, a counter. Look into "
    "it, and save what must go on"
)
_UNSET_ANY = (
    "if no step is left to train, or none of an epoch, the code after the loop uses what only the loop sets: give "
    "these variables a value before the loop"
)
_UNSET = (
    "a resume may begin right after the last step of an epoch: then the code after the inner loop runs before the "
    "loop's body. Set its variables before the inner loop, or use run.meter or run.register"
)
_WRITTEN = (
    "what the script writes and prints must follow from registered state: use values = run.register(best=0.0) before "
    "the loop and values.best in it, run.register(name=thing) for lists, dicts and objects, and run.meter for means. "
    "A resume trains the last steps again: write a file whole from a registered list, where lines are appended to it"
)


def of_reference(reference: AttemptTrace, again: AttemptTrace, difference: Difference) -> Finding:
    """Two uninterrupted trainings differ from each other, so snapshots are not the cause."""
    return _first(REPEAT_CAUSES, Comparison(reference, again, difference, resumed=False))


def of_resume(
    reference: AttemptTrace, attempt: AttemptTrace, difference: Difference, again: AttemptTrace | None = None
) -> Finding:
    """Uninterrupted trainings are equal, and the interrupted one differs from them. ``again``: the second of them."""
    return _first(RESUME_CAUSES, Comparison(reference, attempt, difference, resumed=True, repeat=again))


def _first(causes: Mapping[str, Source[Comparison]], comparison: Comparison) -> Finding:
    finding = first(causes, comparison)
    assert finding is not None  # the last cause of each table always applies
    return finding


def of_end(
    reference: AttemptTrace, other: AttemptTrace, again: AttemptTrace | None = None, *, repeated: bool = False
) -> Finding:
    """The other training has another number of steps."""
    resumed = f", resumed at step {other.resumed_at}," if not repeated else ", also uninterrupted,"
    return Finding(
        "other-end",
        Severity.ERROR,
        f"the training ends after step {other.final_step} instead of {reference.final_step}",
        place=f"after step {min(other.final_step, reference.final_step)}",
        why=f"the uninterrupted training ends after step {reference.final_step}; this one{resumed} ends after step "
        f"{other.final_step}; all steps that both have trained are equal{suspects(reference, other, again)}",
        fix=COUNT_STEPS
        if not repeated
        else "the end must not depend on the time, on a file or on unseeded random numbers",
        confidence=Confidence.LIKELY,
    )


def of_untracked(reference: AttemptTrace, names: list[str]) -> Finding:
    """State that changes and is not registered, even if no step shows it."""
    listed = ", ".join(map(held, names[:NAMED]))
    return Finding(
        "unregistered-state",
        Severity.ERROR,
        f"{listed} {'has' if len(names) == 1 else 'have'} state that changes and is not registered",
        why="it changes during the uninterrupted training, it is not in a snapshot, and no resume restored it",
        fix=how_to_register(names),
    )


def of_files(
    paths: list[str],
    reference: AttemptTrace,
    resumed: AttemptTrace,
    again: AttemptTrace | None,
    two: Sequence[TwoFiles] = (),
) -> Finding:
    """The weights are the same at every step, and what the script writes is not. ``two``: the copies of each file."""
    alike = len({Path(path).name for path in paths}) < len(paths)  # such as one of each checkpoint
    names = ["/".join(Path(path).parts[-2 if alike else -1 :]) for path in paths[:NAMED]]
    listed = ", ".join(names)
    where = "".join(f"; {name}: {each.where}" for name, each in zip(names, two, strict=False) if each.where)
    kept = next((each.copies for each in two if each.copies), ())
    look = f". {'Both are' if kept[1:] else 'A copy is'} kept: {' and '.join(kept)}" if kept else ""
    return Finding(
        "other-files",
        Severity.ERROR,
        f"the script writes another {listed} when it is killed and resumed",
        place=paths[0],
        why="two uninterrupted runs write the same content, and the model is the same at every step"
        + where
        + suspects(reference, resumed, again),
        fix=(_WRITTEN_ANY if reference.any_script else _WRITTEN) + look,
        confidence=Confidence.LIKELY,
    )


def of_printed(
    lines: tuple[str, str], reference: AttemptTrace, resumed: AttemptTrace, again: AttemptTrace | None
) -> Finding:
    """As ``of_files``, of the last lines that the script prints."""
    return Finding(
        "other-output",
        Severity.ERROR,
        "the script prints other numbers when it is killed and resumed",
        place=f"the line {lines[0]!r}",
        why=f"two uninterrupted runs print the same numbers; this one prints {lines[1]!r}"
        + suspects(reference, resumed, again),
        fix=_WRITTEN_ANY if reference.any_script else _WRITTEN,
        confidence=Confidence.LIKELY,
    )


def of_failure(error: RankupError, interruption: str, *, any_script: bool = False) -> Finding:
    """A resumed attempt has failed twice, and uninterrupted ones did not. ``interruption``: the one before it."""
    unset = any(name in error.message for name in ("NameError", "UnboundLocalError"))
    # Also as the last words of a rank show it.
    lost = error.code == STATE_LOST or f"[{STATE_LOST}]" in error.message
    return Finding(
        STATE_LOST if lost else "resume-fails",
        Severity.ERROR,
        "a resume would lose state" if lost else "the script fails when it is resumed",
        place=interruption,
        why=f"two uninterrupted runs did not fail; {error.message}",
        fix=(_UNSET_ANY if any_script else _UNSET)
        if unset
        else error.hint or f"the logs are in {error.context}",
    )
