"""The answer as a table: every scenario on a line, every doubt said, and one last word."""

from __future__ import annotations

from rankup.core.findings import Finding, Severity
from rankup.verify.table import as_dict, text
from rankup.verify.verify import Scenario

ONCE = Scenario("uninterrupted, twice", "2", 2, 0, 20, "identical", True)
KILLED = Scenario("killed and resumed", "2", 3, 2, 23, "identical", True)


def test_a_proof_is_a_table_and_a_word():
    assert text([ONCE, KILLED], 2) == (
        "what                  processes  attempts  kills  steps compared  verdict\n"
        "uninterrupted, twice          2         2      0              20  identical\n"
        "killed and resumed            2         3      2              23  identical\n"
        "\n"
        "proved: the same model, bit for bit"
    )


def test_a_difference_is_drawn_with_its_place_its_evidence_and_its_cure():
    finding = Finding(
        "other-order", Severity.ERROR, "another order", place="at step 3", why="seen", fix="sort"
    )
    bad = Scenario("killed and resumed", "2", 3, 2, 23, "differs", False, finding)
    lines = text([ONCE, bad], 2).splitlines()
    assert lines[4:] == [
        "error in “killed and resumed”: another order [other-order]",
        "where: at step 3",
        "why: seen",
        "mend: sort",
        "",
        "differs: this training is not the same when it is interrupted or repeated",
    ]
    answer = as_dict([ONCE, bad], "runs/verify-x/1")
    assert not answer["proved"]
    assert answer["scenarios"][1]["finding"]["code"] == "other-order"


def test_kills_that_came_too_late_are_said():
    assert "the training ended before 3 of 5 kills" in text([ONCE, KILLED], 5)


def test_what_was_not_compared_is_said():
    once = Scenario("uninterrupted, twice", "2", 2, 0, 20, "identical", True, not_compared=("kept/clock",))
    assert "as a clock does: kept/clock" in text([once, KILLED], 2)


def test_rounding_that_cannot_be_judged_is_not_called_a_proof_of_everything():
    note = Finding("rounding-not-judged", Severity.NOTE, "apart", why="sums", fix="fp64")
    worlds = Scenario("stopped, other processes", "1→2", 2, 0, 20, "not judged: …", True, note)
    assert text([ONCE, worlds], 0).endswith("proved, but for what was not judged")
