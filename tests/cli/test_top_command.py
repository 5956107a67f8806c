"""``rankup top`` as a user meets it, and its screen at all sizes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

from rankup.cli.app import main
from rankup.cli.output.top.columns import filtered, in_order, parse_ranks
from rankup.cli.output.top.keyboard import Keyboard
from rankup.cli.output.top.live import press
from rankup.cli.output.top.plain import plain_lines
from rankup.cli.output.top.screen import View, screen_lines
from rankup.cli.output.top.sparkline import sparkline
from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity
from rankup.monitor.alerts.alert import Alert
from rankup.monitor.frame import Frame
from rankup.monitor.rows import NodeRow, RankRow

GIB = 1 << 30
STEP = {
    **{"kind": "step", "time": 1.0, "epoch": 2, "epochs": 12, "step": 80, "steps": 235, "global_step": 315},
    **{"goal": 2820, "samples_per_s": 12_300.0, "left": 80.0, "metrics": {"loss": 0.3124}},
}


def row(rank: int) -> RankRow:
    return RankRow(
        *(rank, f"node-{rank // 8:03}", rank % 8, 1000 + rank, "arrived", 0.1, 0.5, 315),
        *(90.0 + rank % 10, 70 * GIB, 80 * GIB, 650.0, 61.0, 0.3 + rank / 1000, 25.0, 0.02, 0.2, 0.31),
        tuple(float(90 + n % 10) for n in range(60)),
    )


def alert(rank: int = 3, **values) -> Alert:
    finding = Finding("straggler", Severity.WARNING, f"rank {rank} is slow", fix="exclude the node")
    return replace(Alert(finding, (rank,), 700.0, None, 1.25, "GPU"), **values)


def frame(ranks: int = 64, how_many: int = 1, **values) -> Frame:
    node = NodeRow("node-000", 0.5, 34.0, 100 * GIB, 512 * GIB, 1e6, 100 * GIB, 200 * GIB, 8)
    made = Frame(
        "bert", "/runs/bert/1", 1000.0, "running", "", False, STEP, [row(r) for r in range(ranks)],
        [replace(node, host=f"node-{n:03}") for n in range((ranks + 7) // 8)], [alert(r) for r in range(how_many)],
        tuple(float(n) for n in range(60)),
    )  # fmt: skip
    return replace(made, **values)


def lines(one: Frame, width: int, height: int, **view) -> list[str]:
    return [str(line) for line in screen_lines(one, View(**view), width, height)]


@pytest.mark.parametrize("alerts", [0, 1, 7])
@pytest.mark.parametrize("ranks", [0, 1, 8, 64])
@pytest.mark.parametrize("size", [(300, 10), (40, 10), (80, 24), (80, 5), (10, 3), (1, 1), (200, 80)])
def test_a_frame_fits_its_terminal(size: tuple[int, int], ranks: int, alerts: int):
    shown = lines(frame(ranks, alerts), *size)
    assert len(shown) <= size[1]
    assert max(map(len, shown)) <= size[0]


def test_many_ranks_in_ten_rows_tell_how_many_there_are():
    shown = lines(frame(64, 0, alerts=[alert(3)]), 40, 10)
    assert shown[0].startswith("bert  running  11 %") and "left 1 min 20 s" in shown[0]
    assert shown[1] == "! straggler: rank 3 is slow"
    assert shown[2].split() == ["rank", "use", "mem", "step", "data", "doing"]
    assert shown[4].split() == ["0", "90%", "88%", "300", "ms", "2%", "sync"]
    assert shown[-1].startswith("1-6 of 64")


def test_ranks_of_an_alert_come_first_if_not_all_fit():
    shown = lines(frame(64, alerts=[alert(37)]), 80, 10)
    assert [line.split()[0] for line in shown[3:6]] == ["37", "0", "1"]
    assert lines(frame(4, alerts=[alert(3)]), 80, 24)[-1].startswith("q quit")


def test_scrolling_ends_with_the_last_rank():
    view = View(scroll=1000)
    shown = [str(line) for line in screen_lines(frame(64), view, 80, 10)]
    assert view.scroll == 58 and shown[-1].startswith("59-64 of 64") and shown[-2].split()[0] == "63"


def test_a_wide_terminal_has_all_columns():
    [head] = [line for line in lines(frame(8), 300, 10) if line.startswith("rank")]
    assert head.split() == [
        *(
            "rank",
            "host",
            "gpu",
            "use",
            "mem",
            "GiB",
            "W",
            "°C",
            "step",
            "own",
            "smp/s",
            "data",
            "wait",
            "loss",
        ),
        "doing",
    ]


def test_more_alerts_than_fit_are_counted():
    shown = lines(frame(8, 7), 80, 10)
    assert next(line for line in shown if line.startswith("!")).endswith("(+6 more)")


def test_a_high_terminal_has_the_hints():
    assert "  exclude the node" in lines(frame(8), 80, 24)


def test_a_run_that_stands_still_tells_no_time_left():
    still = frame(ranks=2)
    still = replace(still, ranks=[replace(one, samples_per_s=0.0) for one in still.ranks])
    assert "left" not in lines(still, 80, 24)[0] and "0.0 samples/s" in lines(still, 120, 24)[0]


@pytest.mark.parametrize("width", [40, 80, 300])
def test_what_stays_on_a_terminal_fits_it(width: int):
    """The last frame of a run that has ended; in a pipe the table has all columns."""
    said = plain_lines(frame(ranks=8, ended=True), width)
    assert max(map(len, said)) <= width and "straggler" in " ".join(said)
    assert [line.split()[0] for line in said[-8:]] == [str(rank) for rank in range(8)]
    assert max(map(len, plain_lines(frame(ranks=8)))) > 80


def test_a_run_whose_ranks_have_ended_tells_no_time_left():
    """As soon as they have: the scheduler says so later."""
    ended = [replace(row(rank), phase="ended", phase_s=20.0) for rank in range(2)]
    for one, left in ((frame(ranks=2), True), (replace(frame(ranks=2), ranks=ended), False)):
        assert ("left" in plain_lines(one)[0]) == left and ("left" in lines(one, 40, 10)[0]) == left
    assert plain_lines(replace(frame(), ranks=ended))[-1].endswith("ended")


def test_a_program_whose_ranks_tell_nothing_is_said_to():
    alone = replace(row(0), rank=None)
    assert "its ranks have told nothing" in plain_lines(frame(step=None, ranks=0))[0]
    assert "its ranks have told nothing" in plain_lines(replace(frame(step=None), ranks=[alone]))[0]
    assert "no step yet" in plain_lines(frame(step=None))[0]


def test_rows_are_sorted_and_filtered():
    rows = frame(16).ranks
    assert [one.rank for one in in_order(rows, "step")][:2] == [15, 14]
    unknown = [replace(rows[0], step_s=None), rows[1]]
    assert [one.rank for one in in_order(unknown, "step")] == [1, 0]
    assert [one.rank for one in filtered(rows, "0-2,7")] == [0, 1, 2, 7]
    assert [one.rank for one in filtered(rows, "node-001")] == [*range(8, 16)]
    assert [one.rank for one in filtered(rows, "!", {3})] == [3]
    with pytest.raises(RankupError, match="names no ranks"):
        parse_ranks("3-")


def test_keys_change_the_view():
    view, asked = View(), []

    class Asked:
        def message(self) -> str:
            return "asked"

    def press_all(keys: str) -> bool:
        return all(press(key, view, frame(8), lambda one: asked.append(one) or Asked()) for key in keys)

    assert press_all("s") and view.sort == "step"
    assert press_all("f0-3x") and view.typing == "0-3x" and view.filter == ""
    assert press_all("\x7f\r") and (view.filter, view.typing) == ("0-3", None)
    assert press_all("p") and len(asked) == 1 and view.asked.message() == "asked"
    assert press_all("jjk") and view.scroll == 1
    assert press_all("fq") and view.typing == "0-3q"  # a letter of the filter
    assert press("escape", view, frame(8), lambda one: Asked()) and view.typing is None
    assert not press_all("q")


def test_without_a_terminal_no_key_comes(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with Keyboard() as keyboard:
            assert not keyboard.there and list(keyboard.keys(0.01)) == []
    os.close(writing)


def test_a_sparkline_ends_with_the_newest_value():
    assert sparkline([None, 0, 50, 100], 6, 100) == "   ▁▅█"
    assert sparkline([1, 2, 4], 2) == "▅█"
    assert sparkline([0, 0], 2) == "▁▁" and sparkline([], 3) == "   "


# ------------------------------------------------------------------ the command


def call(*args) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["top", *map(str, args)])
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "records").mkdir(parents=True)
    return tmp_path / "run"


def record(rank: int, age: float, steps: int) -> str:
    return json.dumps(
        {
            **{
                "kind": "rank",
                "time": time.time() - age,
                "rank": rank,
                "world_size": 2,
                "host": "n1",
                "pid": 7,
            },
            **{"gpu": None, "training": "", "phase": "step", "phase_s": 0.1, "global_step": steps},
            **{"steps": steps, "seconds": 0.5 * steps, "data_s": 0.1, "samples": 4 * steps, "loss": 0.25},
            **{"before_steps": 0, "before_s": 0.0, "cpu_s": 1.0, "memory_bytes": GIB},
        }
    )


def train(folder, steps: int = 20) -> None:
    for rank in (0, 1):
        text = "\n".join(record(rank, 10 - n / 2, n) for n in range(steps)) + '\n{"kind": "rank", '
        (folder / "records" / f"rank-{rank}.jsonl").write_text(text)


def test_once_as_json(folder, capsys):
    train(folder)
    assert call("--once", "--json", folder) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "running" and not told["ended"] and told["alerts"] == []
    assert [one["rank"] for one in told["ranks"]] == [0, 1]
    assert told["ranks"][0]["step_s"] == 0.5 and told["samples_per_s"] == 16


def test_a_pipe_gets_lines_until_the_run_ends(folder, capsys):
    train(folder)
    (folder / "outcome").write_text("done\n")
    assert call(folder) == 0
    said = capsys.readouterr().out.splitlines()
    assert "run  done" in said[0] and said[-1].split()[:2] == ["1", "n1"]


def test_a_run_that_has_not_begun_tells_so(folder, capsys):
    assert call("--once", folder) == 0
    assert "run  unknown (no new records)" in capsys.readouterr().out


def test_a_run_that_vanishes_ends_it(folder, capsys, monkeypatch):
    train(folder)
    monkeypatch.setattr("time.sleep", lambda seconds: folder.rename(folder.with_name("away")))
    assert call(folder) == 1
    said = capsys.readouterr()
    assert "[run-is-gone]" in said.err and "Traceback" not in said.err


def test_an_unknown_run_names_the_one_that_was_meant(folder, capsys):
    run = folder.parent / "runs" / "bert" / "20260101-000000-aaaa"
    run.mkdir(parents=True)
    (run / "attempts").write_text("1 1.1@n1 1 n1\n")
    text = '[job]\ncommand = ["train.py"]\nname = "bert"\nfolder = "/"\n[site]\nscheduler = "local"\nname = "local"\n'
    (run / "job.toml").write_text(text)
    assert call("--once", "bret") == 2
    assert "did you mean 'bert'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code"), [(("--sort", "stpe"), "unknown-order"), (("--filter", "1-"), "bad-filter")]
)
def test_a_wrong_option_is_told(folder, capsys, args, code):
    assert call(*args, "--once", folder) == 2
    assert f"[{code}]" in capsys.readouterr().err


def test_stacks_of_ranks_that_are_not_known_are_refused(folder, capsys):
    assert call("--stacks", folder) == 1
    assert "[no-ranks-known]" in capsys.readouterr().err
