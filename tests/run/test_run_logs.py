"""What ranks print, as it reaches the view: files written by hand, polls at times of our choosing."""

from __future__ import annotations

import json

import pytest

from rankup.run import logs as module
from rankup.run.logs import Output

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\n'
CLOSED = "RuntimeError: Connection closed by peer [127.0.0.1]:1\n"


class Screen:
    def __init__(self):
        self.lines = []

    def line(self, rank, stream, text):
        self.lines.append((rank, stream, text))

    def tick(self, run):
        pass


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def ranks(tmp_path):
    return Ranks(tmp_path)


class Ranks:
    """Writes what the guards of ranks would write."""

    def __init__(self, logs):
        self.logs, self.events, self.screen = logs, logs / "events.jsonl", Screen()

    def watched(self, **options):
        return Output(self.logs, self.events, self.screen, **options)

    def event(self, event, rank, **fields):
        with self.events.open("a") as file:
            file.write(
                json.dumps({"event": event, "rank": rank, "time": 0.0, "restarts": 0, "pid": 1, **fields})
                + "\n"
            )

    def say(self, rank, text, stream="err"):
        with (self.logs / f"rank-{rank}.{stream}").open("a") as file:
            file.write(text)


def test_lines_appear_whole_and_with_their_rank(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 0)
    ranks.say(0, "one\ntw", "out")
    output.poll()
    assert ranks.screen.lines == [(0, "out", "one")]
    ranks.say(0, "o\nlast", "out")
    output.poll()
    output.finish()
    assert ranks.screen.lines == [(0, "out", "one"), (0, "out", "two"), (0, "out", "last")]


def test_the_only_process_has_no_rank_to_tell(ranks, clock):
    output = ranks.watched(alone=True)
    ranks.event("start", 0)
    ranks.say(0, "one\n", "out")
    output.poll()
    assert ranks.screen.lines == [(None, "out", "one")]


def test_a_progress_bar_is_shown_as_it_ended(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 0)
    ranks.say(0, "10%\r50%\r100%\n")
    output.poll()
    assert ranks.screen.lines == [(0, "err", "100%")]


def test_a_traceback_that_comes_in_pieces_is_not_mixed_with_others(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 0)
    ranks.event("start", 1)
    ranks.say(1, TRACEBACK)
    output.poll()
    ranks.say(0, "in between\n")
    ranks.say(1, "ValueError: no\n")
    output.poll()
    clock.now += 1
    output.poll()
    texts = [text for _, _, text in ranks.screen.lines]
    assert texts == ["in between", *TRACEBACK.splitlines(), "ValueError: no"]


def test_the_cause_comes_first_although_a_consequence_was_printed_and_ended_before_it(ranks, clock):
    output = ranks.watched()
    for rank in (0, 1):
        ranks.event("start", rank)
    ranks.say(0, TRACEBACK + CLOSED)
    ranks.event("exit", 0, code=1, time=1.0)
    output.poll()
    clock.now += 1
    output.poll()
    assert ranks.screen.lines == []
    ranks.say(1, TRACEBACK + "ValueError: no\n")
    ranks.event("exit", 1, code=1, time=2.0)
    output.poll()
    output.finish()
    assert [rank for rank, _, _ in ranks.screen.lines] == [1, 1, 1, 0]
    assert ranks.screen.lines[2] == (1, "err", "ValueError: no")
    assert "after rank 1 failed" in ranks.screen.lines[3][2]


def test_a_consequence_without_a_cause_is_shown_after_a_while(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 0)
    ranks.say(0, TRACEBACK + CLOSED)
    output.poll()
    clock.now += 10
    output.poll()
    assert len(ranks.screen.lines) == 3


def test_torch_s_own_rank_prefix_is_left_out(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 1)
    ranks.say(1, "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no\n")
    output.poll()
    output.finish()
    assert [text for _, _, text in ranks.screen.lines] == [
        "Traceback (most recent call last):",
        "ValueError: no",
    ]


def test_attempts_are_told_apart(ranks, clock):
    output = ranks.watched()
    ranks.event("start", 0)
    ranks.event("exit", 0, code=1)
    ranks.event("start", 0, restarts=1, pid=7)
    ranks.event("exit", 0, code=0)
    output.poll()
    assert [(end.attempt, end.code) for end in output.exits] == [(0, 1), (1, 0)]
    assert output.restarts == 1
    assert output.running == {}


def test_for_debugging_the_launcher_is_heard_and_no_traceback_is_cut(ranks, clock):
    chatter = ranks.logs / "torchrun.err"
    chatter.write_text("of an earlier attempt\n")
    output = ranks.watched(chatter=chatter)
    with chatter.open("a") as file:
        file.write("starting\n")
    for rank in (0, 1):
        ranks.event("start", rank)
        ranks.say(rank, TRACEBACK + (CLOSED if rank == 0 else "ValueError: no\n"))
        ranks.event("exit", rank, code=1)
    output.poll()
    output.finish()
    assert ranks.screen.lines[0] == (None, "err", "starting")
    assert [rank for rank, _, _ in ranks.screen.lines[1:]] == [1, 1, 1, 0, 0, 0]
