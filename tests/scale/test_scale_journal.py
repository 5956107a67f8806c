"""A study on disk: it goes on after a kill, wherever that came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankup.errors import RankupError
from rankup.scale.journal import Journal, StudyPlan, TrialState

PLAN = StudyPlan(command=["mnist-cnn"], grid={"nproc": (1, 2), "precision": ("fp32",)}, repeats=2)


def whole(folder: Path) -> Journal:
    journal = Journal.create(folder, PLAN)
    for number, trial in enumerate(PLAN.order):
        journal.began(trial, folder / "trials" / str(number), job=f"4{number}")
        journal.ended(trial, {"message": "boom"} if number == 3 else None)
    journal.close()
    return journal


def test_a_study_is_read_as_it_was_begun(tmp_path):
    whole(tmp_path / "s")
    journal = Journal.open(tmp_path / "s")
    assert journal.plan.order == PLAN.order
    assert list(journal.states()) == PLAN.order
    states = list(journal.states().values())
    assert states[0] == TrialState(str(tmp_path / "s" / "trials" / "0"), "40", "done")
    assert (states[3].ended, states[3].failure) == ("failed", {"message": "boom"})
    assert (
        (tmp_path / "s").stat().st_mode & 0o777,
        (tmp_path / "s" / "study.json").stat().st_mode & 0o777,
    ) == (
        0o700,
        0o600,
    )


def test_a_kill_at_any_byte_loses_the_line_at_hand_alone(tmp_path):
    """And what is written afterwards is not lost with that line."""
    whole(tmp_path / "s")
    path = tmp_path / "s" / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = PLAN.order[-1]
    for number, line in enumerate(lines):
        for cut in (0, 1, len(line) // 2, len(line) - 2, len(line) - 1):
            path.write_bytes(b"".join(lines[:number]) + line[:cut])
            journal = Journal.open(tmp_path / "s")
            complete = number + (cut == len(line) - 1)  # only its end was missing
            assert sum(bool(s.ended) for s in journal.states().values()) == complete // 2
            assert sum(bool(s.run) for s in journal.states().values()) == (complete + 1) // 2
            journal.began(last, tmp_path / "again")
            journal.ended(last)
            assert journal.states()[last] == TrialState(str(tmp_path / "again"), "", "done")
            journal.close()


def test_a_run_that_is_begun_again_forgets_how_it_ended(tmp_path):
    journal = whole(tmp_path / "s")
    journal = Journal.open(tmp_path / "s")
    journal.began(PLAN.order[3], tmp_path / "again")
    assert journal.states()[PLAN.order[3]] == TrialState(str(tmp_path / "again"))
    journal.close()


def test_other_lines_do_not_disturb(tmp_path):
    whole(tmp_path / "s")
    journal = Journal.open(tmp_path / "s")
    before = journal.states()
    journal.note("predicted", point={"nproc": 2}, rate=3.0)
    assert journal.states() == before
    assert [one["rate"] for one in journal.notes("predicted")] == [3.0]
    journal.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "no-study"),
        ("{", "no-study"),
        ("[]", "no-study"),
        ("{}", "no-study"),
        ('{"version": 1, "grid": {}}', "other-version"),
        ('{"version": 2, "grid": {}}', "damaged-study"),
        ('{"version": 2, "command": [], "grid": {}, "new": 1}', "damaged-study"),
        ('{"version": 2, "command": ["linear"], "grid": {}}', "damaged-study"),
        ('{"version": 2, "command": ["linear"], "grid": {"nproc": 1}}', "damaged-study"),
        ('{"version": 2, "command": ["linear"], "grid": {"nproc": [1]}, "repeats": "x"}', "damaged-study"),
    ],
)
def test_what_is_no_study_is_one_error(tmp_path, text, code):
    if text is not None:
        (tmp_path / "study.json").write_text(text)
    with pytest.raises(RankupError) as caught:
        Journal.open(tmp_path)
    assert caught.value.code == code
    assert str(tmp_path / "study.json") in caught.value.context


def test_a_line_of_the_journal_that_was_changed_by_hand_is_one_error(tmp_path):
    whole(tmp_path / "s")
    with (tmp_path / "s" / "trials.jsonl").open("a") as file:
        file.write('{"kind": "began"}\n')
    journal = Journal.open(tmp_path / "s")
    with pytest.raises(RankupError) as caught:
        journal.states()
    journal.close()
    assert caught.value.code == "damaged-study" and "'began'" in caught.value.message


def test_the_plan_says_what_was_asked_for(tmp_path):
    Journal.create(tmp_path / "s", PLAN).close()
    told = json.loads((tmp_path / "s" / "study.json").read_text())
    assert (told["command"], told["grid"], told["repeats"]) == (
        ["mnist-cnn"],
        {"nproc": [1, 2], "precision": ["fp32"]},
        2,
    )
