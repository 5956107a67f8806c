"""Programs with a mistake are repaired by the rule's own edits, and the repaired program runs right on real ranks."""

from __future__ import annotations

import pytest

from ranks import run_ranks
from rankup.check.check import diagnostics
from rankup.check.fixes import fixed
from rankup.check.registry import all_rules
from rankup.check.rule import Safety
from rule_examples import subjects_of

HEAD = """
import os, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
# Without the barrier a rank may leave before the other one has connected to it, which gloo takes for a crash.
TAIL = "\ndist.barrier()\ndist.destroy_process_group()\n"


def repaired(text, code):
    files = {"train.py": text}
    matches = [d for d in diagnostics(subjects_of(files)) if d.rule.code == code]
    assert matches
    text = fixed(files, matches)["train.py"]
    assert not [d for d in diagnostics(subjects_of({"train.py": text})) if d.rule.code == code]
    return text


# What the programs make lives until their processes end: the last reference to DDP's reducer joins gloo's threads and
# holds the GIL, which one of them may wait for (torch 2.13: 19 of 150 runs hung under load).
KEPT = []


def run(text):
    names: dict[str, object] = {"__name__": "__main__"}
    KEPT.append(names)
    exec(compile(text, "train.py", "exec"), names)
    return names["RESULT"]


EPOCHS = (
    HEAD
    + """
data = list(range(16))
model = DDP(torch.nn.Linear(1, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
RESULT = []
for epoch in range(3):
    for x in loader:
        RESULT.append(x.tolist())
        model(x.float()[:, None]).sum().backward()
"""
    + TAIL
)
SHUFFLE = (
    HEAD
    + """
data = list(range(16))
loader = DataLoader(data, batch_size=8, shuffle=True, sampler=DistributedSampler(data))
RESULT = sum(len(x) for x in loader)
"""
    + TAIL
)
SPLIT = (
    HEAD
    + """
train, valid = random_split(list(range(1000)), [900, 100])
RESULT = sorted(valid.indices)
"""
    + TAIL
)
BRANCH = (
    HEAD
    + """
value = torch.tensor([float(rank)])
dist.reduce(value, 0)
RESULT = "small"
if value.item() > 0.5:
    RESULT = "large"
"""
    + TAIL
)
CLIP = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scaler = torch.amp.GradScaler("cpu")
before = [p.detach().clone() for p in model.parameters()]
loss = model(torch.ones(2, 4)).sum() * 100
scaler.scale(loss).backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
RESULT = sum(float((a - b).pow(2).sum()) for a, b in zip(before, model.parameters())) ** 0.5
"""
BATCH = """
from torch.utils.data import DataLoader
loader = DataLoader(list(range(10)), batch_size=4)
RESULT = []
for epoch in range(2):
    RESULT.append(len(next(iter(loader))))
"""
# One process forms no group, and has no sampler.
MAYBE_ALONE = """
import os, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
many = int(os.environ.get("WORLD_SIZE", 1)) > 1
if many:
    dist.init_process_group("gloo")
data = list(range(16))
sampler = None
if many:
    sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None)
model = torch.nn.Linear(1, 1)
if many:
    model = torch.nn.parallel.DistributedDataParallel(model)
RESULT = []
for epoch in range(3):
    for x in loader:
        RESULT.append(x.tolist())
        model(x.float()[:, None]).sum().backward()
if many:
    dist.barrier()
"""
ALONE_IN_LOADER = MAYBE_ALONE.replace(
    "sampler=sampler, shuffle=sampler is None", "sampler=DistributedSampler(data) if many else None"
)


def test_set_epoch_is_inserted_and_epochs_differ():
    same = run_ranks(run, 2, EPOCHS)
    assert same[0][0] == same[0][1]
    for epochs in run_ranks(run, 2, repaired(EPOCHS, "RK302")):
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("text", [MAYBE_ALONE, ALONE_IN_LOADER])
def test_what_is_inserted_runs_with_and_without_a_group(text):
    text = repaired(repaired(text, "RK302"), "RK211")
    assert len(run_ranks(run, 1, text)[0]) == 6
    for epochs in run_ranks(run, 2, text):
        assert epochs[0] != epochs[1]


def test_a_download_on_one_rank_asks_whether_there_are_ranks():
    text = (
        HEAD.replace("dist.init", "if many:\n    dist.init")
        + "from torchvision import datasets\ndatasets.MNIST('data', download=True)\n"
    )
    assert repaired(text, "RK306").count("if dist.is_initialized() and dist.get_rank() ") == 2
    assert "is_initialized" not in repaired(text.replace("if many:\n    ", ""), "RK306")


def test_a_group_that_an_object_goes_on_to_use_is_not_destroyed_by_its_maker():
    text = """import torch.distributed as dist
class Trainer:
    def __init__(self, model):
        dist.init_process_group("gloo")
        self.model = DistributedDataParallel(model)
    def train(self, data):
        self.model(data).backward()
Trainer(net).train(data)
"""
    (found,) = [d for d in diagnostics(subjects_of({"train.py": text})) if d.rule.code == "RK211"]
    assert not found.match.edits


def test_a_loader_with_sampler_and_shuffle_works_after_the_fix():
    with pytest.raises(AssertionError, match="mutually exclusive"):
        run_ranks(run, 2, SHUFFLE)
    assert run_ranks(run, 2, repaired(SHUFFLE, "RK303")) == [8, 8]


def test_ranks_split_alike_after_the_fix():
    assert len({tuple(part) for part in run_ranks(run, 2, repaired(SPLIT, "RK309"))}) == 1


def test_ranks_take_the_same_branch_after_the_fix():
    assert run_ranks(run, 2, repaired(BRANCH, "RK209")) == ["large", "large"]


def test_gradients_are_clipped_at_their_true_size_after_the_fix():
    (small,) = run_ranks(run, 1, CLIP)
    (right,) = run_ranks(run, 1, repaired(CLIP, "RK501"))
    assert small < 1e-3
    assert right == pytest.approx(1.0, rel=1e-3)


def test_the_batch_size_is_read_without_a_batch_after_the_fix():
    assert run_ranks(run, 1, repaired(BATCH, "RK312")) == [[4, 4]]


def test_a_fix_that_draws_other_random_numbers_is_unsafe():
    text = "import torch\ntorch.manual_seed(0)\n" + BATCH.replace(
        "batch_size=4)", "batch_size=4, shuffle=True)"
    )
    text += "    next(iter(loader))\nRESULT = torch.rand(1).item()\n"
    assert run_ranks(run, 1, text) != run_ranks(run, 1, repaired(text, "RK312"))
    assert next(rule for rule in all_rules() if rule.code == "RK312").safety is Safety.UNSAFE
