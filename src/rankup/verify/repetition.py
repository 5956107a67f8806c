"""Two uninterrupted trainings of any script differ: in what first, and what makes it so.

A table, in the order in which a step uses its inputs; the first row that applies is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rankup.findings.finding import Confidence, Finding, Severity
from rankup.verify.files import short
from rankup.verify.first_difference import Difference
from rankup.verify.trace_reader import AttemptTrace, Record

_SEED = "seed before the model is made: torch.manual_seed(0), random.seed(0), numpy.random.seed(0)"


class _First(NamedTuple):
    applies: Callable[[Record, Record], bool]
    what: str
    fix: str


def _other(*names: str) -> Callable[[Record, Record], bool]:
    def applies(mine: Record, theirs: Record) -> bool:
        for name in names:
            mine, theirs = mine[name], theirs[name]
        return bool(mine != theirs)

    return applies


_ROWS = (
    _First(
        lambda mine, theirs: mine["step"] == 1 and _other("before", "weights")(mine, theirs),
        "the initial weights",
        _SEED,
    ),
    _First(
        _other("before", "weights"), "the weights before the step", "something changes weights between steps"
    ),
    _First(
        _other("rows"),
        "the order of the samples",
        "seed the order: torch.manual_seed, or a generator= of the loader or the sampler",
    ),
    _First(
        _other("batch"),
        "the values of the same samples",
        "seed the augmentation, in the workers too: torch.manual_seed, worker_init_fn=",
    ),
    _First(
        lambda mine, theirs: _other("loss")(mine, theirs) and bool(_generators(mine, theirs)),
        "the loss of the same batch, and the generators",
        _SEED,
    ),
    _First(
        _other("loss"),
        "the loss of the same batch",
        "an operation of the forward pass, or a value such as the time: torch.use_deterministic_algorithms(True) names "
        "operations",
    ),
    _First(
        _other("gradients"),
        "the gradients of the same loss",
        "an operation of the backward pass: torch.use_deterministic_algorithms(True) names it",
    ),
)
_LAST = _First(
    lambda *_: True, "what the optimizer's step gives", "the optimizer draws or reads something else"
)
_END = _First(
    lambda *_: True, "the state after the last step", "the code after the loop draws or reads something else"
)


def not_deterministic(first: AttemptTrace, again: AttemptTrace, difference: Difference) -> Finding:
    mine, theirs = (trace.steps.get(difference.step, {}).get(difference.rank) for trace in (first, again))
    row, why = _LAST, ["the same command was run twice, and nothing was killed"]
    why.append(f"what differs: {short(list(difference.names))}")
    if difference.at_end:
        row = _END
    elif mine is not None and theirs is not None:
        row = next((row for row in _ROWS if row.applies(mine, theirs)), _LAST)
        if names := _generators(mine, theirs):
            why.append(f"after this step these generators differ: {', '.join(names)}")
    seeds = [trace.begin[0].get("seed") for trace in (first, again)]
    if seeds[0] != seeds[1]:
        why.append("torch's seed is another one in each run")
    return Finding(
        "not-deterministic",
        Severity.ERROR,
        f"two uninterrupted runs differ: first in {row.what}",
        place=f"step {difference.step}" + (f", rank {difference.rank}" if first.world_size > 1 else ""),
        why="; ".join(why),
        fix=row.fix,
        confidence=Confidence.LIKELY,
    )


def _generators(mine: Record, theirs: Record) -> list[str]:
    """Those of ``untracked`` that differ: ``torch``, ``python``, ``numpy``, ``cuda``."""
    names = mine["untracked"].keys() & theirs["untracked"].keys()
    return sorted(
        name.removeprefix("generator ")
        for name in names
        if mine["untracked"][name] != theirs["untracked"][name]
    )
