"""``rankup verify`` as its user types it: what it proves, what it catches, and what it names as the cause."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rankup.cli.app import main

pytestmark = pytest.mark.usefixtures("warm_python")

# Each script is this one with a few lines put in: a small network with dropout, on data of its own.
SCRIPT = """\
import os, random, time
import rankup, torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

class Points(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    def __len__(self):
        return 40
    def __getitem__(self, i):
        {augment}
        return self.x[i] + 0.1 * random.random()

run = rankup.init()
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
model, opt, data = run.prepare(net, lambda p: torch.optim.Adam(p, lr=0.05), Points(), global_batch=4)
average = AveragedModel(net)
{keep}
seen = 0.0
for x in run.steps(data, epochs=2):
    {step}
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    average.update_parameters(net)
"""
KEEP = "run.register(average=average)"


def script(folder: Path, augment: str = "", keep: str = KEEP, step: str = "pass") -> str:
    (folder / "script.py").write_text(SCRIPT.format(augment=augment, keep=keep, step=step))
    return "script.py"


def verify(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Its exit code and its answer in JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "verify", "--json", "--threads", "1", *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def causes(answer: dict[str, Any]) -> list[str]:
    return [row["finding"]["code"] for row in answer["scenarios"] if row["finding"]]


@pytest.mark.timeout(400)
def test_a_script_that_keeps_all_its_state_is_the_same_and_proved_if_all_of_it_was_tried(tmp_path: Path):
    code, answer = verify(tmp_path, "--kills", "2", "--steps", "12", script(tmp_path))
    assert (code, answer["same"], answer["proved"], causes(answer)) == (0, True, False, [])
    left_out = ["a kill while a snapshot was being written", "a kill within a step", "the end of the script"]
    assert answer["not_crossed"] == left_out
    once, killed = answer["scenarios"]
    assert (once["steps_compared"], once["verdict"]) == (12, "identical")
    assert (killed["kills"], killed["attempts"], killed["verdict"]) == (2, 3, "identical")
    assert any(note.startswith("for a proof leave out --kills 2 and --steps 12:") for note in answer["notes"])
    assert killed["steps_compared"] >= 12


@pytest.mark.timeout(400)
@pytest.mark.campaign  # one of the planted faults, of which the next test is another
def test_an_average_that_is_not_kept_is_named(tmp_path: Path):
    code, answer = verify(tmp_path, "--kills", "1", script(tmp_path, keep=""))
    assert (code, causes(answer)) == (1, ["state-not-in-snapshot"])
    finding = answer["scenarios"][1]["finding"]
    assert finding["message"] == "some state is not in the snapshot: AveragedModel (average)"
    assert finding["fix"] == "run.register(average=average) before the loop"


@pytest.mark.timeout(400)
def test_a_variable_that_the_loss_depends_on_and_a_resume_forgets_is_caught(tmp_path: Path):
    text = (
        (tmp_path / script(tmp_path)).read_text().replace("loss.backward()", "(loss / (1 + seen)).backward()")
    )
    (tmp_path / "script.py").write_text(text.replace("    opt.step()", "    seen += loss.item(); opt.step()"))
    code, answer = verify(tmp_path, "--kills", "1", "script.py")
    assert (code, causes(answer)) == (1, ["unsaved-variable"])
    why = answer["scenarios"][1]["finding"]["why"]
    assert "first in the loss, model/0.weight" in why
    assert (
        "it is step 1 after the resume; right after the resume all 4 tensors of the model were equal" in why
    )
    assert "plain variables that start again after a resume: seen" in why


@pytest.mark.timeout(400)
def test_a_quick_proof_is_of_two_epochs_of_three_steps_and_leaves_the_folder_as_it_was(tmp_path: Path):
    name = script(tmp_path)
    with (tmp_path / name).open("a") as file:
        file.write("torch.save(net.state_dict(), 'last.pt')\nprint('steps', run.global_step)\n")
    (tmp_path / "last.pt").write_text("of an earlier training")
    code, answer = verify(tmp_path, "--quick", "--out", "answer.json", name)
    assert (code, answer["conclusion"], answer["epoch_steps"]) == (0, "proved", 3)
    once, killed = answer["scenarios"]
    assert (once["steps_compared"], killed["kills"]) == (6, 3)
    assert json.loads((tmp_path / "answer.json").read_text()) == answer
    assert "files that the script writes, compared and put back as they were: last.pt" in answer["notes"]
    assert (tmp_path / "last.pt").read_text() == "of an earlier training"


@pytest.mark.timeout(120)
def test_a_training_whose_start_takes_too_long_is_not_proved(tmp_path: Path):
    slow = script(tmp_path, step="time.sleep(0.5)")
    code, answer = verify(tmp_path, "--quick", "--budget", "1s", slow)
    assert (code, answer["error"]) == (1, "proof-too-long")


def stopped(folder: Path, attempt: int, *words: str) -> tuple[int, dict[str, Any], str]:
    """Of a verify that gets SIGTERM in a step of this attempt: its exit code, its answer, and what it said."""
    command = [sys.executable, "-m", "rankup", "verify", "--json", "--threads", "1", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    traces = f"runs/*/*/trace-{attempt:02d}/rank-0.jsonl"
    while not any('"step"' in trace.read_text() for trace in folder.glob(traces)):
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    out, err = process.communicate()
    return process.returncode, json.loads(out), err


@pytest.mark.timeout(120)
def test_sigterm_to_verify_is_an_error_and_no_verdict(tmp_path: Path):
    """The ranks save and end well: that is not the end of their training."""
    code, answer, err = stopped(tmp_path, 1, script(tmp_path, step="time.sleep(0.2)"))
    assert (code, answer["error"]) == (143, "interrupted"), err
    assert "ended by SIGTERM in attempt 1" in answer["message"] and "nothing is proved" in answer["hint"]


BY_HAND = """\
import os, time
import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
began = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")
    net.load_state_dict(saved["net"])
    {load}
    began = saved["step"]
for step in range(began, 16):
    torch.manual_seed(step)
    net(torch.randn(4, 3)).square().mean().backward()
    opt.step()
    opt.zero_grad()
    torch.save({{"net": net.state_dict(), "opt": opt.state_dict(), "step": step + 1}}, "last.tmp")
    os.replace("last.tmp", "last.pt")
    time.sleep(0.1)
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "keeps", "conclusion"),
    [
        ("run.steps", False, "differs"),
        ("by hand", True, "not proved"),
        pytest.param("run.steps", True, "not proved", marks=pytest.mark.campaign),
        pytest.param("by hand", False, "differs", marks=pytest.mark.campaign),
    ],
)
def test_a_proof_that_is_stopped_tells_what_the_resumes_before_it_have_shown(
    tmp_path: Path, kind: str, keeps: bool, conclusion: str
):
    """It is killed in its third attempt and resumed in the fourth, and so on."""
    if kind == "run.steps":
        lost = "" if keeps else "; seen += 0.1; x = x + seen"
        name = script(tmp_path, step="time.sleep(0.05)" + lost)
    else:
        name = "script.py"
        load = "opt.load_state_dict(saved['opt'])" if keeps else "pass"
        (tmp_path / name).write_text(BY_HAND.format(load=load))
    code, answer, said = stopped(tmp_path, 6, name)
    assert (code, answer["conclusion"]) == (143, conclusion), answer
    assert len(answer["position"]["interruptions"]) == 2
    assert answer["not_crossed"][0].startswith("all that follows, ended by SIGTERM in attempt 6")
    assert "interruptions and resumes follow, to attempt" in said
    assert bool(causes(answer)) is not keeps
    assert not (tmp_path / "last.pt").exists()  # what it had changed is put back


@pytest.mark.timeout(400)
def test_a_proof_that_is_stopped_on_another_number_of_processes_tells_what_the_resumes_have_shown(
    tmp_path: Path,
):
    name = script(tmp_path, step="time.sleep(0.05)")
    code, answer, _ = stopped(tmp_path, 5, "--kills", "1", "--world", "2,1", name)
    assert (code, answer["conclusion"]) == (143, "not proved"), answer
    assert [row["what"] for row in answer["scenarios"]] == ["uninterrupted, twice", "killed and resumed"]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"augment": "random.seed(time.time_ns())"}, "unseeded-augmentation"),
        # The causes have tests of their own (tests/verify): here one of them is enough, and the campaign has all.
        pytest.param(
            {"step": "own = torch.Generator(); own.manual_seed(os.urandom(1)[0] + time.time_ns()); "
                     "x = x + torch.rand(3, generator=own)"}, "not-deterministic", marks=pytest.mark.campaign),
        pytest.param(
            {"step": "torch.manual_seed(time.time_ns())"}, "unseeded-random", marks=pytest.mark.campaign),
    ],
)  # fmt: skip
def test_what_differs_without_any_kill_is_laid_to_the_script(
    tmp_path: Path, wrong: dict[str, str], cause: str
):
    code, answer = verify(tmp_path, "--steps", "4", script(tmp_path, **wrong))
    assert (code, causes(answer)) == (1, [cause])
    assert len(answer["scenarios"]) == 1  # kills would tell nothing more
    assert answer["scenarios"][0]["finding"]["place"].startswith("at step 1 ")


@pytest.mark.campaign  # the same with more kills is the verify campaign
@pytest.mark.timeout(400)
def test_mnist_cnn_with_dropout_shuffle_and_augmentation_survives_a_kill_bit_for_bit(tmp_path: Path):
    code, answer = verify(
        tmp_path, "--kills", "1", "--steps", "6", "--nproc-per-node", "2",
        "mnist-cnn", "--epochs", "1", "--set", "augment=on", "--global-batch", "32",
    )  # fmt: skip
    assert (code, causes(answer)) == (0, [])
    assert [row["verdict"] for row in answer["scenarios"]] == ["identical", "identical"]
    assert answer["scenarios"][1]["kills"] == 1


@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_on_another_number_of_processes_the_same_samples_make_the_same_model_to_rounding(tmp_path: Path):
    code, answer = verify(
        tmp_path, "--kills", "0", "--steps", "4", "--world", "1,2",
        "mnist-cnn", "--epochs", "1", "--set", "dropout=off", "--precision", "fp64", "--global-batch", "16",
    )  # fmt: skip
    assert (code, causes(answer)) == (0, [])
    row = answer["scenarios"][1]
    assert (row["processes"], row["attempts"], row["steps_compared"]) == ("1→2", 2, 4)
    assert 0 < row["distance"]["largest"] <= 1e-9


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nowhere.py"], "script-not-found"),
        (["--world", "2", "train.py"], "bad-world"),
        (["--world", "1,x", "train.py"], "bad-world"),
        (["mnist-cnn", "--nproc-per-node", "2"], "misplaced-option"),
        (["mnist-cnn", "--set", "dropout"], "bad-setting"),
    ],
)
def test_a_mistake_is_one_error_before_anything_runs(tmp_path: Path, monkeypatch, capsys, words, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    with pytest.raises(SystemExit) as caught:
        main(["verify", *words])
    said = capsys.readouterr()
    assert caught.value.code == 2
    assert f"[{code}]" in said.err and "Traceback" not in said.err
    assert not (tmp_path / "runs").exists()


def test_a_word_that_the_workload_does_not_know_is_a_usage_error(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["verify", "mnist-cnn", "--kills", "3"])
    assert caught.value.code == 2
    assert "rankup train" in (err := capsys.readouterr().err) and "--kills" in err
