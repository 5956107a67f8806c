"""The three parts of an answer, and what makes a script not deterministic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from verify_records import attempt, step

from rankup.cli.output.verify_page import verify_page
from rankup.findings.finding import Finding, Severity
from rankup.verify.conclusion import Position, Proof
from rankup.verify.first_difference import first_difference
from rankup.verify.repetition import not_deterministic
from rankup.verify.scenario import Scenario
from rankup.verify.table import text

ONCE = Scenario("uninterrupted, twice", "1", 2, 0, 20, "identical", True)
PLACE = Position(
    "step", 6, 4, "killed after step 6, went on after step 4: trained 2 steps again", "0–3 twice"
)


def proof(code: str = "") -> Proof:
    finding = Finding(code, Severity.ERROR, "a <b>message</b>") if code else None
    killed = Scenario("killed", "1", 3, 2, 9, "differs" if code else "identical", not code, finding)
    return Proof((ONCE, killed), positions=(PLACE,), any_script=True)


@pytest.mark.parametrize(
    ("code", "verdicts"),
    [
        ("", ["found each time", "the same", "the same"]),
        ("data-not-restored", ["differs", "not judged", "not judged"]),
        ("begins-again", ["not judged", "not judged", "not judged"]),
        ("save-not-atomic", ["differs", "the same", "the same"]),
        ("optimizer-not-restored", ["found each time", "differs", "not judged"]),
        ("rounding", ["found each time", "equal within rounding", "the same"]),
        ("other-files", ["found each time", "the same", "differs"]),
    ],
)
def test_the_first_part_that_differs_is_the_last_that_is_judged(code: str, verdicts: list[str]):
    assert [part.verdict for part in proof(code).parts] == verdicts


def test_the_parts_are_lines_and_a_page_that_runs_nothing_of_a_name():
    lines = text(proof()).splitlines()
    assert "position  found each time: 2 steps trained again" in lines
    one, two = (replace(PLACE, resumed_at=at) for at in (5, 4))
    assert replace(proof(), positions=(one, two)).parts[0].text == "1 to 2 steps trained again"
    assert replace(proof(), positions=(one, one)).parts[0].text == "1 step trained again"
    assert f"  {PLACE.text}; 0–3 twice" in lines
    page = verify_page(proof("other-files"), "train.py '<script>'", "runs/x")
    assert PLACE.text in page and "Content-Security-Policy" in page
    assert "<b>message" not in page and page.count("<script>") == 1


@pytest.mark.parametrize(
    ("at", "other", "said"),
    [
        (1, {"before": {"weights": "b"}}, "the initial weights"),
        (2, {"before": {"weights": "b"}}, "the weights before the step"),
        (2, {"rows": [7]}, "the order of the samples"),
        (2, {"batch": "b"}, "the values of the same samples"),
        (
            2,
            {"loss": ["b"], "untracked": {"generator python": "b"}},
            "the loss of the same batch, and the generators",
        ),
        (2, {"loss": ["b"]}, "the loss of the same batch"),
        (2, {"gradients": "b"}, "the gradients of the same loss"),
        (2, {}, "what the optimizer's step gives"),
    ],
)
def test_what_differs_first_between_two_runs_is_named(at: int, other: dict[str, Any], said: str):
    common = {"before": {"weights": "a"}, "gradients": "a", "untracked": {"generator python": "a"}}
    steps = [step(number, **common) for number in (1, 2)]
    changed = {**common, **other, "state": {"model/w": "other"}}
    twice = [*steps[: at - 1], step(at, **changed)]
    first, again = attempt(*steps), attempt(*twice)
    difference = first_difference(first, [again])
    assert difference is not None
    found = not_deterministic(first, again, difference)
    assert found.message.endswith(f"first in {said}")
    assert "model/w" in found.why


def test_what_differs_after_equal_steps_alone_is_not_laid_to_a_step():
    steps = [step(number, before={"weights": "a"}, gradients="a") for number in (1, 2)]
    ends = [step(2, state={"model/w": weights}) for weights in ("a", "b")]
    first, again = (attempt(*steps, end=end) for end in ends)
    difference = first_difference(first, [again])
    assert difference is not None and difference.at_end
    assert not_deterministic(first, again, difference).message.endswith(
        "first in the state after the last step"
    )
