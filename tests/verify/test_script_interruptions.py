"""The kinds of interruption of any script: where they are, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_any_script import verify
from verify_records import attempt, step

from rankup.verify.interruptions import KINDS, choose, left_out
from rankup.verify.resumes import Resume, samples_of_resume
from rankup.verify.script_causes import likeliest
from rankup.verify.script_pair import Pair

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("warm_python")]

# Epochs of four steps and an evaluation of three batches. SIGUSR1: it saves and ends; SIGTERM: it does not listen.
SCRIPT = """\
import os, signal, sys
import torch
from torch import nn

words = sys.argv[1:]
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=3)
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    done = saved["done"]
    if "scale" not in words:
        scaler.load_state_dict(saved["scaler"])

def save():
    state = {"net": net.state_dict(), "opt": opt.state_dict(), "done": done, "scaler": scaler.state_dict()}
    path = "last.pt" if "direct" in words else "last.tmp"
    torch.save(state, path)
    os.replace(path, "last.pt")

for epoch in range(done // 4, 5):
    generator = torch.Generator().manual_seed(epoch)
    batches = iter(torch.utils.data.DataLoader(dataset, 12, shuffle=True, generator=generator))
    if "replays" not in words:
        for _ in range(done % 4):
            next(batches)
    for a, b in batches:
        loss = nn.functional.mse_loss(net(a), b)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        done += 1
        if done % 4 == (2 if "replays" in words else 0):
            save()
        if asked:
            save()
            sys.exit()
    net.eval()
    with torch.no_grad():
        total = sum(net(a).sum() for a, _ in torch.utils.data.DataLoader(dataset, 16))
    net.train()
"""


@pytest.mark.slow
def test_a_training_is_interrupted_once_in_each_way_and_each_is_a_line(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("RANKUP_VERIFY_GRACE", "60")
    (tmp_path / "train.py").write_text(SCRIPT)
    code, answer = verify(tmp_path, "train.py")
    assert code == 0 and answer["conclusion"] == "proved", answer
    tried = "\n".join(answer["scenarios"][-1]["tried"])
    for words in (
        "killed after step ",
        "killed in an evaluation after step ",
        "killed in a save after step ",
        "half of last.tmp was written",
        "killed at an epoch's end, after step ",
        "handled SIGUSR1: ended by itself",
        "went on after SIGTERM: killed",
        "killed after the last line",
    ):
        assert words in tried, tried
    lines = {each["interruption"]: each for each in answer["position"]["interruptions"]}
    assert lines["SIGUSR1"]["again"] == 0 and lines["writing"]["again"] > 0, lines
    assert [answer[part]["verdict"] for part in ("position", "state", "result")] == [
        "found each time",
        "the same",
        "the same",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "script.py", "train.py"]


@pytest.mark.campaign
def test_a_file_that_is_not_renamed_into_place_is_named_and_the_rest_is_proved(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    _, answer = verify(tmp_path, "--kills", "4", "train.py", "direct")
    assert [finding["code"] for finding in answer["findings"]] == ["save-not-atomic"], answer
    assert answer["scenarios"][-1]["verdict"] == "identical"


PAIR = """
import json, os, torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.05)
x = torch.randn(24, 4)
start = 0
if os.path.exists("meta.json"):
    net.load_state_dict(torch.load("net.pt"))
    start = json.load(open("meta.json"))["epoch"]
for epoch in range(start, 4):
    for rows in torch.randperm(24, generator=torch.Generator().manual_seed(epoch)).split(8):
        opt.zero_grad()
        (net(x[rows]) - x[rows].sum(1, keepdim=True)).square().mean().backward()
        opt.step()
    torch.save(net.state_dict(), "net.tmp")
    os.replace("net.tmp", "net.pt")
    with open("meta.tmp", "w") as file:
        json.dump({"epoch": epoch + 1}, file)
    os.replace("meta.tmp", "meta.json")
"""


@pytest.mark.slow
def test_two_files_that_a_kill_leaves_of_two_saves_are_named(tmp_path: Path):
    (tmp_path / "train.py").write_text(PAIR)
    code, answer = verify(tmp_path, "train.py")
    assert code == 1 and [finding["code"] for finding in answer["findings"]] == ["files-of-two-saves"], answer
    assert "before meta.json was written" in answer["findings"][0]["why"]


@pytest.mark.slow
def test_what_is_forgotten_at_every_kill_is_not_blamed_on_two_files(tmp_path: Path):
    # A history that no resume loads, in the file that the kill between two files leaves out.
    program = PAIR.replace("start = 0\n", "start, history = 0, []\n")
    program = program.replace('{"epoch": epoch + 1}', '{"epoch": epoch + 1, "history": history}')
    (tmp_path / "train.py").write_text(
        program.replace("    torch.save(", "    history.append(epoch)\n    torch.save(")
    )
    code, answer = verify(tmp_path, "train.py")
    assert code == 1 and [finding["code"] for finding in answer["findings"]] == ["other-files"], answer


@pytest.mark.campaign
def test_a_loss_scale_that_begins_again_is_named(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    _, answer = verify(tmp_path, "--kills", "2", "train.py", "scale")
    assert [finding["code"] for finding in answer["findings"]] == ["loss-scale-not-restored"], answer


@pytest.mark.campaign
def test_samples_that_are_trained_twice_are_listed(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    _, answer = verify(tmp_path, "--kills", "2", "train.py", "replays")
    assert [finding["code"] for finding in answer["findings"]] == ["data-not-restored"], answer
    samples = [each["samples"] for each in answer["position"]["interruptions"]]
    assert any("samples of epoch" in text and "twice" in text for text in samples), samples


# ------------------------------------------------------------------------------- without processes


def trained(number: int, rows: list[int], epoch: int = 1, **events: Any) -> dict[str, Any]:
    return step(number, rows=rows, epoch=epoch, **events)


def test_no_kind_is_tried_that_a_training_has_not():
    first = attempt(*(step(number) for number in range(1, 9)), exit=step(8))
    kinds = [each.kind for each in choose(first, None)]
    assert kinds == ["step", "SIGUSR1", "SIGTERM", "end", "exit"]
    assert [each.kind for each in choose(first, 2)] == ["step", "exit"]
    assert choose(first, 0) == []
    assert left_out(first, None) == left_out(first, 5) == []
    assert left_out(first, 2) == ["SIGTERM", "SIGUSR1", "a kill after the last step"]
    assert left_out(first, 2, shortened=True) == ["SIGUSR1"]
    assert "exit" not in [each.kind for each in choose(first, None, shortened=True)]
    assert len(choose(first, len(KINDS) + 2)) >= 5


def test_a_save_is_cut_where_its_largest_file_is_written():
    saves = [["small.json", 10], ["large.pt", 1000]]
    steps = [
        step(number, **({"saved": 2, "saves": saves} if number in (4, 7) else {})) for number in range(1, 11)
    ]
    cut = next(each for each in choose(attempt(*steps, exit=step(10)), None) if each.kind == "writing")
    assert cut.value in ("writing 3 0 2", "writing 6 0 2") and "large.pt" in cut.place


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ([["a.pt"], ["b.pt"]], "between 3 0 2"),
        ([["a.tmp"], ["a.tmp", "a.pt"], ["b.tmp"], ["b.tmp", "b.pt"]], "between 3 0 4"),
        ([["a.tmp"], ["a.tmp", "a.pt"]], None),
        ([["a.pt"]], None),
    ],
)
def test_a_kill_comes_before_the_last_file_of_a_save_that_has_several(changes: Any, value: str | None):
    events = {"saved": 1, "saves": [["a.pt", 1000]], "changes": changes}
    first = attempt(
        *(step(number, **(events if number == 4 else {})) for number in range(1, 11)), exit=step(10)
    )
    assert next((each.value for each in choose(first, None) if each.kind == "between"), None) == value


def test_an_order_that_a_resume_draws_anew_from_another_state_is_named():
    """Within an epoch, a loader that was a batch ahead has no batch of this step."""
    before = dict.fromkeys(("weights", "optimizer", "options", "lr", "frozen", "untrained", "counts"), "same")
    more = {
        "before": before,
        "inputs": [],
        "batches": [],
        "gradients": "",
        "gradient_size": 1.0,
        "batch": "",
        "loss": [],
    }

    def seeded(number: int, state: str | None, **other: Any) -> dict[str, Any]:
        iterated = None if state is None else {"generator torch": state}
        return step(
            number, **{**more, "iterated": iterated, "untracked": {"generator torch": number}, **other}
        )

    begin = {"draws": True, "workers": False, "generators": {"generator torch": "seed"}}
    first = attempt(seeded(1, "seed"), seeded(2, None), seeded(3, None), begin=begin)
    later = {"gradients": "others", "gradient_size": 2.0, "untracked": {"generator torch": "others"}}
    for state, code in (("later", "data-not-restored"), ("seed", "generators-not-restored")):
        resumed = attempt(seeded(3, state, **later), resumed_at=2, begin=begin)
        pair = Pair(first, resumed, 3, first.steps[3][0], resumed.steps[3][0], frozenset(), 0)
        _, cause, message = likeliest([pair], [])
        assert cause.code == code
        assert ("drawn anew" in message) == (state == "later")
    given = {**later, "untracked": first.steps[3][0]["untracked"], "inputs": ["other"]}
    other = attempt(seeded(3, None, **given), resumed_at=2, begin=begin)
    pair = Pair(first, other, 3, first.steps[3][0], other.steps[3][0], frozenset(), 0)
    assert "no DataLoader made them" in likeliest([pair], [])[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[2, 3], [4, 5]], ""),
        ([[0, 1], [2, 3], [4, 5]], "samples of epoch 1: 0–1 twice"),
        ([[4, 5]], "samples of epoch 1: 2–3 never"),
        ([[0, 1], [4, 5]], "samples of epoch 1: 0–1 twice, 2–3 never"),
    ],
)
def test_samples_of_an_epoch_are_counted_over_the_resume(given: list[list[int]], said: str):
    whole = [trained(1, [0, 1]), trained(2, [2, 3]), trained(3, [4, 5]), trained(4, [0, 1], 2)]
    first = attempt(*whole, exit=step(4))
    rest = [trained(number, rows, 7) for number, rows in enumerate(given, 2)]
    other = attempt(*rest, trained(2 + len(given), [9, 9], 8), resumed_at=1, exit=step(5))
    resume = Resume(choose(first, 1)[0], 2, "", 1, other)
    assert samples_of_resume(first, resume) == said
