"""The answer as a table: every scenario on a line, every doubt said, and one last word."""

from __future__ import annotations

from rankup.findings.finding import Finding, Severity
from rankup.verify.proof import Proof
from rankup.verify.scenario import Scenario
from rankup.verify.table import as_dict, text
from rankup.verify.values import Distance

ONCE = Scenario("uninterrupted, twice", "2", 2, 0, 20, "identical", True)
KILLED = Scenario(
    "killed and resumed", "2", 3, 2, 23, "identical", True, tried=("after step 4", "after step 9")
)


def test_a_proof_is_a_table_and_a_word():
    crossed = ("a kill within a step", "the end of the script")
    assert text(Proof((ONCE, KILLED), crossed)) == (
        "what                  processes  attempts  kills  steps compared  verdict\n"
        "uninterrupted, twice          2         2      0              20  identical\n"
        "killed and resumed            2         3      2              23  identical\n"
        "\n"
        "tried: after step 4; after step 9\n"
        "\n"
        "crossed: a kill within a step; the end of the script\n"
        "\n"
        "proved: the same model, bit for bit"
    )


def test_a_difference_is_drawn_with_its_place_its_evidence_and_its_cure():
    finding = Finding(
        "other-order", Severity.ERROR, "another order", place="at step 3", why="seen", fix="sort"
    )
    bad = Scenario("killed and resumed", "2", 3, 2, 23, "differs", False, finding)
    proof = Proof((ONCE, bad), not_crossed=("a kill within a step",))
    lines = text(proof).splitlines()
    assert lines[4:] == [
        "error: another order [other-order]",
        "  where: killed and resumed, at step 3",
        "  why:   seen",
        "  hint:  sort",
        "",
        "differs: this training is not the same when it is interrupted",
    ]
    answer = as_dict(proof, "runs/verify-x/1")
    assert not answer["proved"] and not answer["same"]
    assert answer["scenarios"][1]["finding"]["code"] == "other-order"
    assert [f["place"] for f in answer["findings"]] == ["killed and resumed, at step 3"]


def test_equal_trainings_are_no_proof_of_what_was_not_crossed():
    proof = Proof((ONCE, KILLED), ("a kill within a step",), ("a kill in an evaluation",))
    assert (proof.same, proof.proved) == (True, False)
    lines = text(proof).splitlines()
    assert "not crossed: a kill in an evaluation" in lines
    assert lines[-1] == "no difference found in 23 steps; not proved, see what was not crossed"
    assert as_dict(proof, "")["not_crossed"] == ["a kill in an evaluation"]


def test_what_a_training_is_too_short_for_is_said_and_is_no_doubt():
    proof = Proof((ONCE, KILLED), notes=("this training has one epoch",))
    assert proof.proved and "note: this training has one epoch" in text(proof)


def test_what_was_not_compared_is_said():
    once = Scenario(
        "uninterrupted, twice", "2", 2, 0, 20, "identical", True, not_compared=("registered/clock",)
    )
    assert "as a clock does: registered/clock" in text(Proof((once, KILLED)))


def test_rounding_that_cannot_be_judged_is_not_called_a_proof_of_everything():
    note = Finding("rounding-not-judged", Severity.NOTE, "apart", why="sums", fix="fp64")
    worlds = Scenario(
        "stopped, other processes", "1→2", 2, 0, 20, "not judged: …", True, note, Distance(8.5e-4, "w", False)
    )
    apart = "on 1→2 processes the weights differ by up to 8.5e-04, which this precision cannot judge"
    for others, last in (
        ({}, f"proved on the same number of processes alone: {apart}"),
        ({"not_crossed": ("a kill",)}, f"not proved: {apart}; see what was not crossed"),
        ({"lost": ("warning: lost",)}, f"not proved: {apart}; because an attempt lost state"),
    ):
        proof = Proof((ONCE, worlds), **others)
        assert text(proof).splitlines()[-1] == last
        assert not proof.proved and as_dict(proof, "")["conclusion"] == last.partition(":")[0]


def test_nothing_is_proved_if_an_attempt_said_that_something_was_lost():
    proof = Proof((ONCE, KILLED), ("a kill within a step",), lost=("warning: this resume has lost n",))
    assert not proof.proved and proof.same
    assert text(proof).endswith(
        "printed by an attempt: warning: this resume has lost n\n\n"
        "no difference found; not proved, because an attempt lost state"
    )


def test_a_quick_proof_says_what_it_is_of():
    proof = Proof((ONCE, KILLED), ("a kill within a step",), epoch_steps=3)
    assert text(proof).splitlines()[-1].startswith("proved in loops of two epochs of 3 steps: ")


def test_a_training_that_differs_without_a_kill_is_not_deterministic_and_not_said_to_resume_badly():
    finding = Finding("not-deterministic", Severity.ERROR, "a kernel")
    once = Scenario("uninterrupted, twice", "1", 2, 0, 20, "differs", False, finding)
    proof = Proof((once,), not_crossed=("a kill within a step",))
    assert text(proof).endswith("not deterministic, not proved: two uninterrupted runs differ")
    assert as_dict(proof, "")["conclusion"] == proof.conclusion == "not deterministic"
