"""State that no snapshot holds: what changes, what a resume brings back after all, and what every epoch resets."""

from __future__ import annotations

import ast

import pytest
from verify_records import attempt, step

from rankup.verify.causes import how_to_register
from rankup.verify.evidence import born_later, changing, never_restored, renewed
from rankup.verify.trace_reader import AttemptTrace


def training(first: int = 1, last: int = 6, offset: int = 0, **other: object) -> AttemptTrace:
    steps = (step(n, untracked={"StepLR": f"s-{n - offset}", "Teacher": "t"}) for n in range(first, last + 1))
    begin = {"untracked": {"StepLR": f"s-{first - 1 - offset}", "Teacher": "t"}}
    return attempt(*steps, resumed_at=first - 1, begin=begin, **other)  # type: ignore[arg-type]


def test_what_changes_and_never_came_back_is_named_and_what_stays_the_same_is_not():
    assert changing(training()) == ["StepLR"]
    assert never_restored(training(), []) == ["StepLR"]
    assert never_restored(training(), [training(1, 3)]) == ["StepLR"]  # nothing had to come back
    assert never_restored(training(), [training(4, 6, offset=3)]) == ["StepLR"]  # it began anew


def test_what_comes_back_after_a_resume_is_saved_by_something_else():
    assert never_restored(training(), [training(1, 3), training(4, 6)]) == []


def test_what_only_the_code_after_the_loop_changes_is_named():
    end = step(6, untracked={"StepLR": "s-6", "Teacher": "other"})
    assert changing(training(exit=end)) == ["StepLR", "Teacher"]


def test_what_every_epoch_begins_anew_is_no_state_that_is_lost():
    epochs = [
        {"epoch": n, "untracked": {"StepLR": f"s-{3 * n}", "Meter": "0", "Teacher": "t"}} for n in (0, 1)
    ]
    steps = (step(n, untracked={"StepLR": f"s-{n}", "Meter": f"m-{n}", "Teacher": "t"}) for n in range(1, 7))
    begin = {"untracked": {"StepLR": "s-0", "Meter": "0", "Teacher": "t"}}
    assert renewed(attempt(*steps, begin=begin, epochs=epochs)) == ["Meter"]
    assert renewed(training(epochs=epochs[:1])) == []


def test_what_is_made_within_the_loop_is_not_state_of_its_own():
    steps = (
        step(n, untracked={"StepLR": f"s-{n}", **({"Tensor a": f"a-{n}"} if n > 3 else {})})
        for n in range(1, 7)
    )
    begun = attempt(*steps, begin={"untracked": {"StepLR": "s-0"}})
    assert born_later(begun) == {"untracked/Tensor a"}


def of_rounds(first: int, last: int, begins: tuple[int, ...], other: str = "") -> AttemptTrace:
    """Two trainings of three steps in one process: each has data of its own, and the second one a teacher that moves,
    which the script restores by itself; ``other`` is its value if it does not."""

    def held(n: int, loop: int) -> dict[str, object]:
        teacher = {"Teacher teacher": other or f"t-{n}"} if loop == 3 else {}
        return {"untracked": {"Tensor dataset.tensors[0]": f"data-{loop}", **teacher}}

    steps = [step(n, **held(n, 3 if n > 3 else 0)) for n in range(first, last + 1)]
    starts = {at: step(at, **held(at, 3 if at >= 3 else 0)) for at in begins}
    return attempt(*steps, resumed_at=begins[0], begin=starts[begins[0]], starts=starts)


def test_data_that_is_another_in_the_next_training_does_not_change_in_training():
    whole = of_rounds(1, 6, (0, 3))
    assert changing(whole) == ["Teacher teacher"]
    assert never_restored(whole, []) == ["Teacher teacher"]


def test_what_comes_back_in_a_later_training_of_the_process_is_saved_by_something_else():
    whole, resumed = (
        of_rounds(1, 6, (0, 3)),
        of_rounds(3, 6, (2, 4)),
    )  # the first one gives its last step again
    assert never_restored(whole, [resumed]) == []
    assert never_restored(whole, [of_rounds(3, 6, (2, 4), other="anew")]) == ["Teacher teacher"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("StepLR schedule", "run.register(schedule=schedule)"),
        ("Teacher self.teacher", "run.register(teacher=self.teacher)"),
        ("Tensor dataset.tensors[0]", "run.register(tensors_0=dataset.tensors[0])"),
        ("Tensor held['a.b']", "run.register(held_a_b=held['a.b'])"),
        ("Tensor modules.in_[0]", "run.register(in__0=modules.in_[0])"),
        ("Tensor modules.class_", "run.register(tensor=modules.class_)"),
        ("Tensor history['loss'].mean", "run.register(mean=history['loss'].mean)"),
    ],
)
def test_a_hint_for_what_is_not_registered_is_code(name: str, call: str):
    said = how_to_register([name])
    assert said == f"{call} before the loop"
    ast.parse(call)
