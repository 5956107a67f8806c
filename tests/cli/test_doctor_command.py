"""``rankup doctor`` on this machine: text, JSON, a file, micro-benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankup.cli.app import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "RANK", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def call(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", *args])
    return int(exit_.value.code or 0)


def test_what_works_and_a_verdict(capsys: pytest.CaptureFixture[str]):
    assert call("--quick") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("scheduler:") and lines[-1].split(":")[0] in ("healthy", "doubtful")
    assert any(line.startswith("torch:") for line in lines)


@pytest.mark.slow
def test_json_and_a_file_to_compare_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call("--quick", "--json", "--out", "before.json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] != "broken" and said["nodes"]["0"]["machine"]["cpus"] > 0
    assert json.loads((tmp_path / "before.json").read_text())["hosts"] == said["hosts"]
    assert call("--quick", "--compare", "before.json") == 0


def test_its_page_says_what_a_default_means(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    page = " ".join(capsys.readouterr().out.split())
    assert "ranks per node [default: one per GPU; without GPUs 1]" in page
    assert "[default: MASTER_PORT; without it no port is tried]" in page
    assert "[default: 0" not in page


def test_a_port_that_is_taken_is_exit_code_1(capsys: pytest.CaptureFixture[str]):
    import socket

    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        assert call("--quick", "--port", str(holder.getsockname()[1])) == 1
    assert "[port-taken]" in capsys.readouterr().out


@pytest.mark.usefixtures("warm_python")
def test_a_micro_benchmark(capsys: pytest.CaptureFixture[str]):
    assert call("matmul", "--sizes", "64,128", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["size"] for one in said["records"]] == [64, 128]
    assert all(one["forward"] > 0 and one["rate"] > 0 and one["unit"] == "GFLOP/s" for one in said["records"])


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("matmul", "--sizes", "big"), "bad-sizes"),
        (("matmul", "--sizes", "0"), "bad-sizes"),
        (("matmul", "--dtype", "int8"), "bad-dtype"),
        (("--sizes", "4"), "no-benchmark"),
        (("--compare", "missing.json"), "bad-examination"),
    ],
)
def test_wrong_usage_is_one_error(args: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]):
    assert call(*args) == 2
    assert f"[{code}]" in capsys.readouterr().err
