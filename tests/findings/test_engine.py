"""The engine: every source is asked, the worst comes first, and only errors that are sure fail."""

from __future__ import annotations

import pytest

from rankup.errors import RankupError
from rankup.findings.engine import FactMissing, collect, fails, first
from rankup.findings.error import FindingsError, raise_errors
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.findings.text import text_lines

ERROR = Finding("wrong", Severity.ERROR, "wrong", place="here", why="so", fix="do")
UNSURE = Finding("doubtful", Severity.ERROR, "doubtful", confidence=Confidence.LIKELY)
WARNING = Finding("risky", Severity.WARNING, "risky")
NOTE = Finding("by-the-way", Severity.NOTE, "by the way")
SOURCES = {
    "notes": lambda facts: [NOTE],
    "doubts": lambda facts: [UNSURE],
    "rest": lambda facts: [WARNING, ERROR],
}


def missing(facts):
    yield WARNING
    raise FactMissing("time")


def raising(facts):
    raise RankupError("bad-time", "no time", context="--time", hint="1h")


def test_all_sources_are_asked_and_the_worst_comes_first_then_what_is_sure():
    assert collect(SOURCES, None) == [ERROR, UNSURE, WARNING, NOTE]


def test_sources_get_the_facts():
    assert [
        f.message for f in collect({"x": lambda facts: [Finding("x", Severity.NOTE, facts)]}, "a fact")
    ] == ["a fact"]


@pytest.mark.parametrize("ignored", ["notes", "by-the-way"])
def test_a_code_or_a_source_is_ignored_by_its_name(ignored):
    assert NOTE not in collect(SOURCES, None, ignore=[ignored])


def test_a_source_that_lacks_a_fact_says_no_more_and_the_others_do():
    assert collect({"lacks": missing, **SOURCES}, None) == [ERROR, UNSURE, WARNING, NOTE]


def test_an_error_that_a_source_raises_is_a_finding_and_so_are_its_findings():
    [finding] = collect({"raising": raising}, None)
    assert finding == Finding("bad-time", Severity.ERROR, "no time", place="--time", fix="1h")

    def several(facts):
        raise_errors([ERROR, WARNING])

    assert collect({"several": several}, None) == [ERROR, WARNING]


def test_what_two_sources_say_is_said_once():
    assert collect({"a": lambda facts: [NOTE], "b": lambda facts: [NOTE]}, None) == [NOTE]


def test_a_diagnosis_is_what_the_first_source_says_that_knows():
    sources = {"silent": lambda facts: [], "lacks": missing, "sure": lambda facts: [ERROR]}
    assert first(sources, None) is WARNING
    assert first({"silent": lambda facts: []}, None) is None


@pytest.mark.parametrize(
    ("findings", "code"), [([], False), ([WARNING, NOTE], False), ([UNSURE], False), ([NOTE, ERROR], True)]
)
def test_only_errors_that_are_sure_fail(findings, code):
    assert fails(findings) is code


def test_several_findings_are_one_error_with_the_worst_as_its_own():
    error = FindingsError([NOTE, ERROR, WARNING], conclusion="not done")
    assert (error.code, error.context, error.hint, error.exit_code) == ("wrong", "here", "do", 2)
    assert str(error).splitlines() == [
        "error: wrong [wrong]",
        "  where: here",
        "  why:   so",
        "  hint:  do",
        "warning: risky [risky]",
        "note: by the way [by-the-way]",
        "1 error, 1 warning, 1 note: not done",
    ]


def test_warnings_alone_raise_nothing():
    raise_errors([WARNING, NOTE])


@pytest.mark.parametrize(
    "error", [FindingsError([WARNING, ERROR], exit_code=1), RankupError("x", "y", hint="z")]
)
def test_an_error_crosses_as_a_dict_with_all_its_findings(error):
    again = FindingsError.from_dict(error.as_dict())
    assert (type(again), again.as_dict(), str(again)) == (type(error), error.as_dict(), str(error))


def test_a_long_text_is_wrapped_below_its_first_word():
    finding = Finding("superlinear", Severity.WARNING, "fast", why=" ".join(["word"] * 30))
    _, head, rest = text_lines([finding], 105)
    assert head.startswith("  why:   word") and rest.startswith(" " * 9 + "word")
    assert max(len(head), len(rest)) <= 105
    assert len(text_lines([finding])) == 2  # whole lines without a width
