"""``rankup verify`` of scripts that do not use rankup: faults of a resume that people really make, one at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("warm_python")]

# A loop as in many tutorials. Each part of its state has a word: what stands on the command line is not restored.
SCRIPT = """\
import os, random, sys
import torch
from torch import nn

forgets = sys.argv[1:]
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(48, 4)
y = x.sum(1, keepdim=True).sin()
dataset = torch.utils.data.TensorDataset(x, y)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(net) if ranks > 1 else net
opt = torch.optim.Adam(net.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))
sampler = torch.utils.data.DistributedSampler(dataset, ranks, rank, seed=1)
epoch = 0
average = 1.0
path = f"rank-{rank}.pt"
asked = "asks" not in forgets or path in forgets
if os.path.exists(path) and "begins" not in forgets and asked:
    saved = torch.load(path if "shared" not in forgets else "rank-0.pt", weights_only=True)
    if "weights" not in forgets:
        net.load_state_dict(saved["net"])
    if "optimizer" not in forgets:
        opt.load_state_dict(saved["opt"])
    if "schedule" not in forgets:
        schedule.load_state_dict(saved["schedule"])
    else:
        for group in opt.param_groups:
            group["lr"] = group["initial_lr"]
    if "generator" not in forgets:
        torch.set_rng_state(saved["random"])
    if "epoch" not in forgets:
        epoch = saved["epoch"]
    if "hidden" not in forgets:
        average = saved["average"]
while epoch < 4:
    sampler.set_epoch(epoch)
    for a, b in torch.utils.data.DataLoader(dataset, 12 // ranks, sampler=sampler):
        loss = nn.functional.mse_loss(model(a), b)
        average = 0.9 * average + 0.1 * loss.item()
        (loss / average).backward()
        if "random" in forgets:
            loss = loss * random.random()
            net[0].weight.grad.mul_(random.random())
        opt.step()
        opt.zero_grad()
        schedule.step()
    epoch += 1
    if "save" not in forgets:
        state = {"net": net.state_dict(), "opt": opt.state_dict(), "schedule": schedule.state_dict(), "epoch": epoch,
                 "random": torch.get_rng_state(), "average": average}
        torch.save(state, path + ".tmp")
        os.replace(path + ".tmp", path)
    if ranks > 1:
        torch.distributed.barrier()
print("weights", sum(p.sum().item() for p in net.parameters()))
"""


def verify(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "verify", "--json", "--threads", "1", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


FAULTS = {
    "weights": "weights-not-restored",
    "optimizer": "optimizer-not-restored",
    "schedule": "schedule-not-restored",
    "generator": "generators-not-restored",
    "epoch": "data-not-restored",
    "hidden": "hidden-state",
    "begins": "begins-again",
    "save": "no-checkpoint",
    "random": "not-deterministic",
}


IN_SHORT = ("save",)  # the others are the campaign's


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name in IN_SHORT else pytest.mark.campaign) for name in FAULTS]
)
def test_what_a_resume_has_not_restored_is_named(tmp_path: Path, fault: str):
    code, answer = verify(tmp_path, "--kills", "1" if fault in IN_SHORT else "2", "script.py", fault)
    assert code == 1
    assert [finding["code"] for finding in answer["findings"]] == [FAULTS[fault]], answer
    judged = {"begins": "not judged", "save": "not judged", "random": "not deterministic"}
    assert answer["conclusion"] == judged.get(fault, "differs")


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
def test_a_resume_that_restores_all_is_proved_and_the_files_are_as_they_were(tmp_path: Path, ranks: int):
    # Each rank has a file of its own: a kill in one's save leaves the others a step ahead, and the script fails.
    kills = () if ranks == 1 else ("--kills", "2")
    code, answer = verify(tmp_path, "--nproc-per-node", str(ranks), *kills, "script.py")
    assert code == 0, answer
    # On three ranks DDP's first step sums in another order.
    conclusions = {1: "proved", 2: "not proved", 3: "equal within rounding"}
    assert answer["conclusion"] == conclusions[ranks], answer
    # Each kind but an evaluation, and the second save.
    assert answer["scenarios"][1]["kills"] == (8 if ranks == 1 else 2)
    positions = [each["text"] for each in answer["position"]["interruptions"]]
    # How far the other ranks are when one is killed depends on the machine.
    assert any("went on after step 4: trained" in text for text in positions), positions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "script.py"]


@pytest.mark.campaign
def test_a_rank_that_reads_the_file_of_another_is_named(tmp_path: Path):
    code, answer = verify(tmp_path, "--nproc-per-node", "2", "--kills", "2", "script.py", "shared")
    assert code == 1
    assert answer["findings"][0]["code"] in (
        "generators-not-restored",
        "buffers-not-restored",
        "hidden-state",
    )


AHEAD = """\
import os, sys
import torch
from torch import nn

torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.randn(40, 4))
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-7)
temperature, done = 1.0, 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    done = saved["done"]
    if "hidden" not in sys.argv:
        temperature = saved["temperature"]

def batches():
    for epoch in range(2):
        generator = torch.Generator().manual_seed(epoch)
        yield from torch.utils.data.DataLoader(dataset, 4, shuffle=True, generator=generator)

ahead = iter(batches())
for _ in range(done):
    next(ahead)
batch = next(ahead, None)
while batch is not None:
    following = next(ahead, None)
    temperature *= 1.01
    (temperature * net(batch[0]).square().mean()).backward()
    opt.step()
    opt.zero_grad()
    done, batch = done + 1, following
    if done % 4 == 0:
        torch.save({"net": net.state_dict(), "done": done, "temperature": temperature}, "last.tmp")
        os.replace("last.tmp", "last.pt")
"""


@pytest.mark.campaign
@pytest.mark.parametrize(("words", "code"), [((), None), (("hidden",), "hidden-state")])
def test_a_loader_that_is_a_batch_ahead_and_skips_is_no_fault_and_a_tiny_rate_hides_none(
    tmp_path: Path, words: tuple[str, ...], code: str | None
):
    (tmp_path / "ahead.py").write_text(AHEAD)
    _, answer = verify(tmp_path, "--kills", "2", "ahead.py", *words)
    assert [finding["code"] for finding in answer["findings"]] == ([code] if code else []), answer
    assert answer["conclusion"] == ("differs" if code else "not proved")


@pytest.mark.slow
def test_without_a_kill_nothing_is_proved(tmp_path: Path):
    code, answer = verify(tmp_path, "--kills", "0", "script.py")
    assert code == 0 and answer["conclusion"] == "not proved", answer
    assert "a kill after a step" in answer["not_crossed"]


# In the campaign by the processes that its user starts: test_startup.py shows what runs first in one of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    "python", ["warm", pytest.param("own", marks=[pytest.mark.own_python, pytest.mark.campaign])]
)
def test_what_its_user_types_after_a_kill_is_given(tmp_path: Path, python: str):
    words = ("--kills", "1", "--resume-args", "{last}", "--checkpoint", "rank-*.pt")
    code, answer = verify(tmp_path, *words, "script.py", "asks")
    assert code == 0 and answer["scenarios"][-1]["verdict"] == "identical", answer
    # One kill is no proof: the kinds that it leaves out are named.
    assert answer["conclusion"] == "not proved", answer
    assert {"a kill in a save", "a kill at an epoch's end", "SIGTERM"} < {*answer["not_crossed"]}
    assert "a kill after a step" not in answer["not_crossed"]
    assert any(note.startswith("for a proof leave out --kills 1:") for note in answer["notes"])


@pytest.mark.campaign
def test_a_script_that_must_be_told_where_to_go_on_begins_again_without(tmp_path: Path):
    _, answer = verify(tmp_path, "--kills", "2", "script.py", "asks")
    assert [finding["code"] for finding in answer["findings"]] == ["begins-again"]


BY_STEPS = """\
import os
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")
    net.load_state_dict(saved["net"])
    torch.set_rng_state(saved["random"])
    done = saved["done"]
while done < 8:
    loss = net(torch.randn(3, 4)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    done += 1
    if done % 2 == 0:
        torch.save({"net": net.state_dict(), "random": torch.get_rng_state(), "done": done}, "last.tmp")
        os.replace("last.tmp", "last.pt")
print(loss.item())
"""


@pytest.mark.slow
def test_a_resume_that_fails_names_the_interruption_before_it_and_what_is_true_of_its_script(tmp_path: Path):
    (tmp_path / "steps.py").write_text(BY_STEPS)
    _, answer = verify(tmp_path, "--kills", "2", "steps.py")
    (finding,) = answer["findings"]
    assert finding["code"] == "resume-fails"
    assert finding["place"] == "killed and started again, killed after the last line of the script", finding
    assert "uses what only the loop sets" in finding["fix"] and "run.meter" not in finding["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("restores", "code"),
    [
        (True, "data-not-restored"),
        pytest.param(False, "generators-not-restored", marks=pytest.mark.campaign),
    ],
)
def test_a_batch_that_was_drawn_ahead_of_the_save_and_is_lost_is_no_fault_of_the_generators(
    tmp_path: Path, restores: bool, code: str
):
    text = BY_STEPS.replace("while done", "batch = torch.randn(3, 4)\nwhile done")
    # Noise is drawn between the batches: none of a resume is that of another step.
    text = text.replace("loss = net(torch.randn(3, 4)).square().mean()", "loss = net(batch).square().mean()")
    text = text.replace(
        "    loss.back", "    loss = loss * torch.rand(1)\n    batch = torch.randn(3, 4)\n    loss.back"
    )
    text = text if restores else text.replace("    torch.set_rng", "    torch.get_rng_state() # ")
    (tmp_path / "steps.py").write_text(text)
    _, answer = verify(tmp_path, "--kills", "1", "steps.py")
    assert [finding["code"] for finding in answer["findings"]] == [code], answer
    assert ("drawn ahead" in answer["findings"][0]["message"]) == restores


SPAWNS = """\
import sys, torch, torch.multiprocessing as mp
import script_of_a_rank

def main(rank, words, ranks, file):
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    script_of_a_rank.train(rank, ranks, words)

if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, (sys.argv[1:], 2, f"{folder}/meeting"), 2)
"""


@pytest.mark.campaign
@pytest.mark.parametrize(("fault", "conclusion"), [("none", "not proved"), ("epoch", "differs")])
def test_ranks_that_a_script_starts_itself_are_seen(tmp_path: Path, fault: str, conclusion: str):
    body = "".join(f"    {line}\n" for line in SCRIPT.splitlines() if not line.startswith(("import", "from")))
    body = body.replace("forgets = sys.argv[1:]", "forgets = words").replace("if ranks > 1:", "if False:", 1)
    body = "\n".join(line for line in body.splitlines() if "rank, ranks =" not in line)
    head = "import os, random, sys\nimport torch\nfrom torch import nn\n\ndef train(rank, ranks, words):\n"
    (tmp_path / "script_of_a_rank.py").write_text(head + body)
    (tmp_path / "spawns.py").write_text(SPAWNS)
    _, answer = verify(tmp_path, "--kills", "2", "spawns.py", fault)
    assert answer["conclusion"] == conclusion, answer


@pytest.mark.slow
def test_a_shortened_proof_ends_every_training_after_two_saves(tmp_path: Path):
    code, answer = verify(tmp_path, "--shorten", "script.py")
    assert code == 0 and answer["conclusion"] == "proved", answer
    assert answer["last_step"] == 11 and answer["scenarios"][0]["steps_compared"] == 11
    assert any("shortened" in note for note in answer["notes"])


@pytest.mark.campaign
def test_a_proof_shortened_to_a_number_of_steps_names_a_fault(tmp_path: Path):
    code, answer = verify(tmp_path, "--shorten", "7", "--kills", "1", "script.py", "optimizer")
    assert [finding["code"] for finding in answer["findings"]] == ["optimizer-not-restored"], answer


def test_what_needs_the_loop_of_rankup_says_so(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "verify", "--quick", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode != 0 and "[needs-run-steps]" in done.stderr
