"""``rankup explain CODE``: what is said under a code is read from the places that say it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands import calling
from rankup.explain.codes import Said, all_said, page_of, said_in_python, said_under

TESTS = Path(__file__).parents[1]
MODULE = """
ROWS = (("row-code", ("words",), "a message of a row", "a hint of a row"),)
TABLE = Refusal("no-table", "not with {strategy}", "use ddp")

def outer(name, many):
    hint = "try " + f"{name.path}" if many else "wait"

    def inner():
        why = "the reason"
        raise RankupError("a-code" if many else "other-code", f"no {name!r}{near(name)}", hint=hint)

    return Finding(f"bad-{kind}", Severity.ERROR, why or "a message", fix="mend it")
"""


def test_calls_and_rows_are_read_with_what_is_assigned_around_them():
    said = {one.code: one for one in said_in_python(MODULE, "m.py")}
    assert said["row-code"] == Said("row-code", "a message of a row", "", "a hint of a row", "m.py")
    assert said["no-table"] == Said("no-table", "not with <strategy>", "", "use ddp", "m.py")
    assert said["a-code"] == Said("a-code", "no <name>…", "", "", "m.py")
    assert said["other-code"].message == said["a-code"].message
    assert said["bad-<kind>"] == Said("bad-<kind>", "the reason | a message", "", "mend it", "m.py")
    assert len(said) == 5


def test_a_text_that_is_chosen_is_given_in_all_its_forms():
    (one,) = said_in_python(
        'def f():\n    h = "a" if x else "b" + c\n    RankupError("a-b", "m", hint=h)', "m.py"
    )
    assert one.hint == "a | b<c>"


def test_a_text_that_a_caller_passes_is_his():
    helper = 'def refuse(why):\n    raise RankupError("a-b", why, hint=sigh)\n'
    callers = 'def f():\n    text = "two words"\n    refuse(text)\n    refuse(why=f"no {name}")\n'
    assert list(said_in_python(helper + callers, "m.py")) == [
        Said("a-b", "two words | no <name>", "", "", "m.py")
    ]


@pytest.fixture(scope="module")
def everything() -> dict[str, list[Said]]:
    return all_said()


@pytest.mark.slow
def test_a_text_of_nothing_that_is_known_is_left_out(everything: dict[str, list[Said]]):
    texts = (
        text for said in everything.values() for one in said for text in (one.message, one.why, one.hint)
    )
    assert [text for text in texts if re.fullmatch(r"[\W]*(<\w+>[\W]*)+|…", text)] == []
    assert all(one.message for code in ("bad-metric", "bad-duration") for one in said_under(code))


@pytest.mark.slow
def test_every_code_that_a_test_of_an_error_expects_is_known(everything: dict[str, list[Said]]):
    """Also one of which a part is filled in (``unknown-<kind>``), and one of a table."""
    asserted = re.compile(r'\b(?:error|caught\.value|raised\.value)\.code == "([a-z]+(?:-[a-z0-9]+)+)"')
    codes = {code for path in TESTS.rglob("test_*.py") for code in asserted.findall(path.read_text())}
    assert len(codes) > 50
    assert {code for code in codes if code not in everything and not said_under(code)} == set()


@pytest.mark.slow
def test_a_code_and_a_rule_are_explained_and_a_word_that_is_neither_is_an_error(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    explain = calling("explain")
    assert explain(capsys, "[in-use]") == (0, page_of("in-use", said_under("in-use")) + "\n", "")
    assert "\n  another rankup scale works on this study\n" in page_of("in-use", said_under("in-use"))
    assert explain(capsys, "no-srun") == calling("rules")(capsys, "RK101")
    _, printed, _ = explain(capsys, "in-use", "--json")
    assert json.loads(printed)["said"][0]["source"] == "scale/journal.py"
    code, _, said = explain(capsys, "in-us")
    assert code == 2 and "no code named 'in-us'" in said
