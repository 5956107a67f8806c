"""Who failed first, and of what."""

from __future__ import annotations

import signal

import pytest

from rankup.run.failure import ATTEMPT, Exit, Logs, first_failure, last_exception, left_early, reason

ABORTED = (
    "killed by SIGABRT as its interpreter ended, while a communicator's thread still ran (`rankup.init()` waits "
    "for it; without it, os._exit(0) is a last line that cannot meet it)"
)
TRACEBACK = "Traceback (most recent call last):\n  File x\n"


@pytest.mark.parametrize(
    ("exits", "logs", "rank"),
    [
        ([], {}, None),
        ([Exit(0, 0, 1.0)], {}, None),
        ([Exit(0, 1, 2.0), Exit(1, 1, 1.0)], {}, 1),
        ([Exit(0, 1, 1.0), Exit(1, 1, 2.0)], {0: "RuntimeError: Connection closed by peer"}, 1),
        ([Exit(0, 1, 1.0)], {0: "RuntimeError: Connection closed by peer"}, 0),
        ([Exit(0, -signal.SIGTERM, 1.0), Exit(1, 3, 2.0)], {}, 1),
        ([Exit(0, 1, 1.0, attempt=0), Exit(1, 1, 9.0, attempt=1)], {}, 1),
    ],
)
def test_the_first_failure_is_the_earliest_that_is_no_consequence(tmp_path, exits, logs, rank):
    for of, text in logs.items():
        (tmp_path / f"rank-{of}.err").write_text(TRACEBACK + text)
    found = first_failure(exits, Logs(tmp_path))
    assert (found.rank if found else None) == rank


@pytest.mark.parametrize(
    ("code", "log", "text"),
    [
        (1, TRACEBACK + "ValueError: no\n", "ValueError: no"),
        (1, "no traceback\n\n", "exit code 1; its last line: no traceback"),
        (1, TRACEBACK + "ValueError: \x1b[1mno\x1b[0m\x07\n", "ValueError: no"),
        (3, None, "exit code 3"),
        (-signal.SIGKILL, "", "killed by SIGKILL (often: out of memory)"),
        (-signal.SIGABRT, "terminate called without an active exception\n", ABORTED),
        (
            -signal.SIGABRT,
            "free(): invalid pointer\n",
            "killed by SIGABRT; its last line: free(): invalid pointer",
        ),
        (-signal.SIGSEGV, "", "killed by SIGSEGV"),
    ],
)
def test_the_reason_in_one_line(tmp_path, code, log, text):
    if log is not None:
        (tmp_path / "rank-0.err").write_text(log)
    assert reason(Exit(0, code, 0.0), Logs(tmp_path)) == text


def test_the_exception_of_the_last_traceback_counts():
    chained = [
        *TRACEBACK.splitlines(),
        "KeyError: 1",
        "",
        "During handling …",
        "",
        *TRACEBACK.splitlines(),
        "ValueError: 2",
    ]
    assert last_exception(chained) == "ValueError: 2"
    assert last_exception(["all is well"]) is None


def test_a_rank_that_had_ended_with_0_is_named_where_the_failure_follows_from_that(tmp_path):
    (tmp_path / "rank-0.err").write_text(TRACEBACK + "RuntimeError: Connection closed by peer")
    (tmp_path / "rank-3.err").write_text(TRACEBACK + "ValueError: no")
    logs, closed = Logs(tmp_path), Exit(0, 1, 5.0)
    exits = [Exit(1, 0, 4.0), Exit(2, 0, 3.0), closed, Exit(4, 0, 6.0), Exit(5, 0, 1.0, attempt=-1)]
    assert left_early(exits, closed, logs) == [2, 1]
    assert left_early(exits, Exit(3, 1, 5.0), logs) == []


def test_lines_of_an_earlier_attempt_and_in_the_spare_directory(tmp_path):
    (tmp_path / "rank-0.err").write_text(f"{TRACEBACK}ValueError: old\n{ATTEMPT} 2, now\n")
    assert reason(Exit(0, 7, 0.0), Logs(tmp_path)) == "exit code 7"
    (tmp_path / "spare").mkdir()
    (tmp_path / "spare" / "rank-0.err").write_text(f"{TRACEBACK}ValueError: new\n")
    assert reason(Exit(0, 7, 0.0), Logs(tmp_path, tmp_path / "spare")) == "ValueError: new"
