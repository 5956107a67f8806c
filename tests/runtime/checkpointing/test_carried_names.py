"""Which variables a loop carries from pass to pass, by its source."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.runtime.checkpointing.carried.names import carried_around, carried_attributes
from rankup.runtime.checkpointing.carried.syntax import in_comprehension


def carried(body: str, *, after: str = "") -> set[str]:
    """Of ``best``, ``other`` and their attributes, in a loop with this body in a function."""
    text = textwrap.dedent(body)
    lines = ["def main():", "    for epoch in epochs:", *indented(text, 8), *indented(after)]
    at = lines.index("    for epoch in epochs:") + 1
    (loop, *_) = carried_around("\n".join(lines), at)
    return {name for name in loop.names if name.split(".")[0] in ("best", "other")}


def indented(text: str, by: int = 4) -> list[str]:
    return textwrap.indent(text, " " * by).splitlines()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("best = max(best, accuracy)", {"best"}),
        ("best += 1", {"best"}),
        ("best.append(loss)", {"best", "best.append"}),
        ("best[epoch] = loss", {"best"}),
        ('best["loss"] = loss\nprint(best["loss"])', set()),
        ('best["loss"].append(loss)', {"best.[loss]", "best.[loss].append"}),
        ('best["loss"] = loss\nprint(best)', {"best"}),
        ('best["a b"] = loss', {"best"}),
        ("best.value = min(best.value, loss)", {"best", "best.value"}),
        ("best = 0.0\nfor batch in epoch:\n    best += loss", set()),
        ("best = new()\nbest.count += 1", set()),
        ("best.reset()\nfor batch in epoch:\n    best.update(loss)", set()),
        ("best.count = 0\nfor batch in epoch:\n    best.count += 1", set()),
        ("opt.zero_grad()\nbest.zero_()\nbest += 1", set()),
        ("if loss:\n    best = 1\nprint(best)", {"best"}),
        ("if loss:\n    best = 1\nelse:\n    best = 2\nprint(best)", set()),
        ("if loss:\n    continue\nbest = 1\nprint(best)", set()),
        ("if not loss:\n    continue\nelse:\n    best = 1\nprint(best)", set()),
        ("for best in epoch:\n    print(best)", set()),
        ("for batch in epoch:\n    best = loss\nprint(best)", set()),
        ("for batch in epoch:\n    if batch:\n        break\n    best = 1\nprint(best)", {"best"}),
        ("for batch in epoch:\n    best = 1\n    if batch:\n        break\nprint(best)", set()),
        ("other.reset(best)\nbest = 1", {"best"}),
        ("with best as other:\n    print(other)", {"best"}),
        ("try:\n    best = 1\nexcept ValueError:\n    pass\nprint(best)", {"best"}),
        ("try:\n    pass\nfinally:\n    best = 1\nprint(best)", set()),
        ("print([best for best in epoch])", set()),
        ("print([best for row in epoch])", {"best"}),
        ("print(max(epoch, key=lambda row: row - best))", {"best"}),
        ("print(max(epoch, key=lambda best: -best))", set()),
        ("if (best := loss) > 1:\n    print(best)", set()),
        ("best, other = other, best", {"best", "other"}),
        ("match loss:\n    case [best]:\n        pass\n    case _:\n        best = 1\nprint(best)", {"best"}),
        ("best = 1", set()),
        ("import best\nprint(best)", set()),
    ],
)
def test_what_a_pass_may_read_before_it_has_set_it_is_carried(body: str, names: set[str]):
    assert carried(body) == names


def test_what_a_pass_sets_only_sometimes_is_carried_if_it_is_read_after_the_loop():
    body = "if loss:\n    best = copy(weights)\nother = loss"
    assert carried(body) == set()
    assert carried(body, after="print(best, other)") == {"best"}


def test_clocks_are_not_carried():
    assert carried("print(now() - best)\nbest = time.time()") == set()
    assert carried("other = round(time.time() - begun, 2)\nbest += other") == set()
    assert carried("best += [(loss, time.time())]\nother = kept(other, time.time())") == {"best", "other"}


def test_the_loops_around_a_line_come_from_the_inside_out():
    source = "for fold in folds:\n    best += 1\n    for epoch in epochs:\n        other += 1\nother\n"
    inner, outer = carried_around(source, 3)
    assert "other" in inner.names and "best" not in inner.names and (inner.line, outer.line) == (3, 1)
    assert "best" in outer.names
    assert carried_around(source, 5) == ()


def test_functions_that_change_names_of_the_script_are_looked_at():
    source = """
    step = 0
    history = []
    def tick(x):
        global step
        step += 1
        history.append(x)
        own = 0
        own += 1
    def main():
        history.clear()
        for batch in data:
            tick(batch)
    """
    (loop,) = carried_around(textwrap.dedent(source), 12)
    assert {"step", "history"} <= loop.names and not {"own", "x"} & loop.names


def test_attributes_that_a_method_reads_before_it_sets_them():
    source = """
    class Stopper:
        def __init__(self):
            self.best, self.patience, self.shown = 1, 2, 3
            self.begun = time.time()
        def reset(self):
            self.shown -= 1
        def __call__(self, loss):
            self.last = loss
            print(self.begun)
            if self.last < self.best:
                self.best = loss
    """
    assert carried_attributes(textwrap.dedent(source), "Stopper") == {"best"}
    assert carried_attributes(textwrap.dedent(source), "Other") == set()


def test_of_two_classes_with_one_name_the_one_that_was_made_is_read():
    source = """
    if weighted:
        class Loss:
            def forward(self, x):
                self.weight *= 0.9
    else:
        class Loss:
            def forward(self, x):
                self.calls += 1
    """
    plain = textwrap.dedent(source)
    assert carried_attributes(plain, "Loss", 5) == {"weight"}
    assert carried_attributes(plain, "Loss", 9, "forward") == {"calls"}
    assert carried_attributes(plain, "Loss") == {"weight"}


@pytest.mark.parametrize("source", ["for", "\0", "(" * 500, ""])
def test_what_is_no_python_carries_nothing(source: str):
    assert carried_around(source, 1) == () and carried_attributes(source, "A") == set()


# A program over four names, as lines; each statement notes what it reads before it has set it.
NAMES = st.sampled_from("abcd")
EXPRESSIONS = st.lists(NAMES, max_size=2).map(lambda names: " + ".join([*names, "1"]))
SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, EXPRESSIONS),
    st.builds("{} += {}".format, NAMES, EXPRESSIONS),
    st.builds("print({})".format, EXPRESSIONS),
    st.sampled_from(["continue", "break"]),
)


def blocks(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.builds(lambda test, yes: f"if chance({test}):\n{shifted(yes)}", EXPRESSIONS, body),
        st.builds(lambda yes, no: f"if chance():\n{shifted(yes)}\nelse:\n{shifted(no)}", body, body),
        st.builds(lambda name, each: f"for {name} in (1, 2):\n{shifted(each)}", NAMES, body),
        st.builds(
            lambda first, other: f"try:\n{shifted(first)}\nexcept ValueError:\n{shifted(other)}", body, body
        ),
    )


def shifted(text: str) -> str:
    return textwrap.indent(text, "    ")


class Noting(dict[str, Any]):
    """The variables of a pass: notes each name that is read before it was set."""

    def __init__(self, chances: list[bool]) -> None:
        super().__init__(chance=lambda *_: chances.pop() if chances else True, print=lambda *_: None)
        self.early: set[str] = set()

    def __missing__(self, name: str) -> int:
        self.early.add(name)
        return 1


@given(st.lists(st.recursive(SIMPLE, blocks, max_leaves=8), min_size=1, max_size=5), st.lists(st.booleans()))
def test_no_name_is_missed_that_a_pass_has_read_before_it_was_set(statements: list[str], chances: list[bool]):
    source = "for turn in (1,):\n" + shifted("\n".join(statements))
    (loop,) = carried_around(source, 1)
    variables = Noting(chances)
    exec(compile(source, "pass", "exec"), {}, variables)
    assert variables.early - {"turn"} <= loop.names


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("losses = [step(x) for x in epoch]", True),
        ("total = sum(map(step, epoch))", True),
        ("kept = list(epoch)", True),
        ("for x in map(moved, epoch):\n    pass", False),
        ("for x in (moved(x) for x in epoch):\n    pass", False),
        ("x = next(batches)", False),
    ],
)
def test_what_makes_one_value_of_an_epoch_is_a_comprehension_or_a_call(code: str, named: bool):
    assert in_comprehension(code, 1) is named
