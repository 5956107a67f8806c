"""``rankup verify`` of scripts that cannot be proved: one clear error, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_any_script import SCRIPT

from rankup.cli.app import main
from rankup.cli.commands.verify import ResumeArguments
from rankup.errors import RankupError

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("warm_python")]

STEPS = """\
import os, sys
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def step():
    net(torch.ones(4)).sum().backward()
    opt.step()
    opt.zero_grad()

step()
"""
FAILING = {
    "nothing-traced": "print('hello')",
    "asks-for-input": "input('which model? ')",
    "needs-gpu": "import torch; torch.zeros(1).to('cuda')",
    "several-trainings": STEPS.removesuffix("step()\n")
    + """
first = os.fork()
for _ in range(2):
    step()
if first == 0:
    os._exit(0)
os.waitpid(first, 0)
""",
    "file-not-kept": STEPS + "open('large.bin', 'wb').close()",
}


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rankup", "verify", "--threads", "1", *words],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


IN_SHORT = ("asks-for-input", "file-not-kept", "several-trainings")


@pytest.mark.repeated
@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=() if code in IN_SHORT else pytest.mark.campaign) for code in FAILING],
)
def test_a_script_that_cannot_be_proved_is_one_error(tmp_path: Path, code: str):
    (tmp_path / "script.py").write_text(FAILING[code])
    (tmp_path / "large.bin").write_bytes(b"x" * 5000)
    process = start(tmp_path, "script.py", RANKUP_WRITTEN_LIMIT="4000")
    _, said = process.communicate(timeout=500)
    assert process.returncode in (1, 2) and said.count("error:") == 1 and f"[{code}]" in said, said
    assert (tmp_path / "large.bin").read_bytes() == b"x" * 5000
    assert left_in(tmp_path) == []


def test_a_file_that_is_too_large_is_named_and_removed_and_a_fork_is_no_training(tmp_path: Path):
    (tmp_path / "script.py").write_text(
        STEPS
        + "pid = os.fork()\nif pid == 0:\n    step()\n    sys.exit()\nos.waitpid(pid, 0)\nstep()\n"
        + "open('huge.bin', 'wb').write(b'x' * 5000)\n"
    )
    process = start(tmp_path, "--kills", "0", "script.py", RANKUP_WRITTEN_LIMIT="4000")
    out, said = process.communicate(timeout=500)
    assert process.returncode == 0 and "no difference found in 2 steps" in out, out + said
    assert "too large to be compared" in out and "huge.bin" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "script.py"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(word, marks=() if word == "attempt 3" else pytest.mark.campaign)
        for word in ("attempt 1", "ended at step 16", "attempt 3", "killed at step", "attempt 5")
    ],
)
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path, line: str):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = start(tmp_path, "script.py")
    assert process.stderr is not None
    for said in process.stderr:
        if line in said:
            break
    else:
        pytest.fail(f"it never said {line!r}")
    time.sleep(0.5)  # anywhere in this phase
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert left_in(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "script.py"]


def left_in(folder: Path) -> list[str]:
    """The processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


HANGS = """\
import os, time
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
while os.path.exists("last.pt"):
    time.sleep(0.1)  # waits for a step that never comes
for step in range(1, 9):
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
    opt.zero_grad()
    if step % 3 == 0:
        torch.save({"net": net.state_dict()}, "last.pt")
os.remove("last.pt")
"""


@pytest.mark.campaign
def test_a_resume_that_waits_for_ever_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from rankup.verify import interrupted

    monkeypatch.setattr(interrupted, "_PATIENCE_S", 5.0)
    monkeypatch.setattr(interrupted, "_PATIENCE", 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(HANGS)
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--json", "--threads", "1", "--kills", "1", "--out", "answer.json", "script.py"])
    assert ended.value.code == 1
    (finding,) = json.loads((tmp_path / "answer.json").read_text())["findings"]
    assert finding["code"] == "resume-fails" and "had not ended after" in finding["why"]
    assert "killed after step" in finding["place"]


def test_arguments_of_a_resume_name_the_newest_checkpoint_or_its_number(tmp_path: Path):
    asked = ResumeArguments("--resume {last} --iteration={number}", "out/*.pt", tmp_path)
    assert asked() == []
    (tmp_path / "out").mkdir()
    for number, age in ((100, 50), (250, 10)):
        path = tmp_path / "out" / f"v2-{number}.pt"
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    assert asked() == ["--resume", "out/v2-250.pt", "--iteration=250"]
    with pytest.raises(RankupError) as error:
        ResumeArguments("--iteration {number}", "", tmp_path)
    assert error.value.code == "bad-resume-args"
