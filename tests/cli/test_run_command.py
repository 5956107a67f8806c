"""``rankup run`` from its command line: what it takes, what it refuses, and how it shows lines."""

from __future__ import annotations

import io
import json

import pytest

from commands import calling
from rankup.cli.output.rank_lines import LineView

run = calling("run")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import sys; print(*sys.argv[1:])")
    (tmp_path / "module.py").write_text("import sys; print('module', *sys.argv[1:])")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["missing.py"], "script-not-found"),
        (["--nproc-per-node", "0", "script.py"], "bad-nproc-per-node"),
        (["--nproc-per-node", "two", "script.py"], "bad-nproc-per-node"),
        (["--node-rank", "1", "script.py"], "incomplete-nodes"),
        (["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "host", "script.py"], "bad-rdzv-endpoint"),
        (["--runs-root", "script.py/runs", "script.py"], "unwritable-directory"),
        (["--name", "../x", "script.py"], "bad-name"),
        ([], "no-script"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2_and_leaves_nothing(capfd, folder, args, code):
    ended, out, err = run(capfd, *args)
    assert (ended, out) == (2, "")
    first, *rest = err.splitlines()
    assert first.startswith("error: ")
    assert first.endswith(f"[{code}]")
    assert all(line.startswith(("  where: ", "  hint:  ")) for line in rest)
    assert not list(folder.glob("runs/*/*"))


def test_mistakes_of_all_kinds_are_reported_together(capfd):
    options = ["--threads", "x", "--nnodes", "2", "--resume-with", "both", "--lost", "all"]
    options += ["--rdzv-timeout", "soon"]
    ended, _, err = run(capfd, *options, "missing.py")
    assert ended == 2
    codes = {line.rpartition("[")[2].rstrip("]") for line in err.splitlines() if line.startswith("error: ")}
    wrong_values = {"bad-threads", "bad-rdzv-timeout", "bad-resume-with", "bad-lost"}
    assert codes == {*wrong_values, "incomplete-nodes", "script-not-found"}
    assert "--threads must be a whole number, got 'x'" in err
    assert "where: flag" not in err


def test_the_port_may_be_left_open_only_by_an_agent_of_an_allocation(capfd, folder):
    ended, _, err = run(
        capfd, "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:0", "script.py"
    )
    assert ended == 2
    assert "127.0.0.1:0 has no port" in err
    assert not list(folder.glob("runs/*/*"))


def test_without_torch_several_processes_are_refused_in_one_line(capfd, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended, _, err = run(capfd, "--nproc-per-node", "2", "script.py")
    assert ended == 2
    assert "[torch-missing]" in err.splitlines()[0]


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("args", "out"),
    [
        (["script.py", "--nproc-per-node", "0", "--help"], "--nproc-per-node 0 --help\n"),
        (["--", "script.py", "-x"], "-x\n"),
        (["-m", "module", "-m"], "module -m\n"),
        (["echo", "hello"], "hello\n"),
    ],
)
def test_options_end_at_the_script(capfd, args, out):
    code, printed, err = run(capfd, *args)
    *notes, header, end = err.splitlines()
    assert (code, printed) == (0, out)
    assert ["comes after script.py" in note for note in notes] == ["--nproc-per-node" in args] * len(notes)
    assert header.startswith("rankup: 1 process on ") and end.startswith("rankup: done after ")


def test_json_leaves_stdout_to_the_result(capfd, folder):
    ended, out, err = run(capfd, "--json", "script.py", "hello")
    result = json.loads(out)
    assert (ended, err) == (0, "hello\n")
    assert (result["code"], result["error"]) == (0, None)
    assert json.loads((folder / result["run"] / "outcome.json").read_text())["outcome"] == "done"


def test_job_toml_says_where_each_value_came_from(capfd, folder):
    run(capfd, "--nproc-per-node", "1", "--name", "mine", "script.py", 'say "x"')
    (path,) = folder.glob("runs/mine/*/job.toml")
    job, origin = path.read_text().split("[origin]\n")
    assert 'command = ["script.py", "say \\"x\\""]' in job
    assert "nproc_per_node = 1\n" in job
    assert 'nproc_per_node = "flag"\n' in origin
    assert 'name = "flag"\n' in origin
    assert 'max_restarts = "default"\n' in origin


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_prefixes_have_colours_on_a_terminal_only(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen, file = Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", file)
    LineView().line(1, "out", "text")
    LineView().line(1, "err", "text")
    LineView().line(None, "out", "alone")
    assert screen.getvalue() == "\x1b[32m[rank 1]\x1b[0m text\nalone\n"
    assert file.getvalue() == "[rank 1] text\n"
