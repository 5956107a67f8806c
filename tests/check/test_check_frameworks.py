"""A framework silences only what it does itself: the same mistakes of a script's own code are found beside each."""

from __future__ import annotations

import pytest

from rankup.check.check import diagnostics
from rule_examples import subjects_of

HEAD = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torchvision import datasets
"""
MISTAKES = """
data = datasets.MNIST("data", download=True)
train, valid = random_split(data, [0.9, 0.1])
loader = DataLoader(train, batch_size=32, sampler=DistributedSampler(train))
test_loader = DataLoader(valid, batch_size=32, sampler=DistributedSampler(valid, shuffle=False))
net = torch.nn.Linear(784, 10)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAINING = """
net.load_state_dict(torch.load("last.pt", map_location="cpu")["model"])
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        BACKWARD
        optimizer.step()
    right = torch.zeros(1)
    with torch.no_grad():
        for x, y in test_loader:
            right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    torch.save({"model": net.state_dict(), "epoch": epoch}, "last.pt")
"""
LOSS = "torch.nn.functional.cross_entropy(model(x), y)"
STARTED = {
    "ddp": ('dist.init_process_group("gloo")', "torch.nn.parallel.DistributedDataParallel(net)", f"{LOSS}.backward()"),
    "deepspeed": (
        "import deepspeed\ndeepspeed.init_distributed()",
        'deepspeed.initialize(model=net, optimizer=optimizer, config="ds.json")[0]',
        f"model.backward({LOSS})",
    ),
    "accelerate": (
        "from accelerate import Accelerator\naccelerator = Accelerator()",
        "accelerator.prepare(net)",
        f"accelerator.backward({LOSS})",
    ),
    "horovod": ("import horovod.torch as hvd\nhvd.init()", "net", f"{LOSS}.backward()"),
}  # fmt: skip
OWN = {"RK302", "RK304", "RK306", "RK309", "RK401", "RK405"}


def found(text):
    return {d.rule.code for d in diagnostics(subjects_of({"train.py": text}))}


@pytest.mark.parametrize("name", STARTED)
def test_mistakes_with_data_and_files_of_the_scripts_own_are_found_beside_a_framework(name):
    start, model, backward = STARTED[name]
    text = HEAD + start + MISTAKES + f"model = {model}\n" + TRAINING.replace("BACKWARD", backward)
    assert OWN - found(text) == set()


def test_a_loader_that_accelerate_prepares_is_told_the_epoch_by_it():
    start, _, backward = STARTED["accelerate"]
    prepared = "model, loader = accelerator.prepare(net, loader)\n"
    text = HEAD + start + MISTAKES + prepared + TRAINING.replace("BACKWARD", backward)
    assert "RK302" not in found(text)


LIGHTNING = (
    HEAD
    + """
import lightning as L

class Data(L.LightningDataModule):
    def setup(self, stage=None):
        data = datasets.MNIST("data", download=True)
        self.train, self.valid = random_split(data, [0.9, 0.1])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=64)

class Model(L.LightningModule):
    def on_train_epoch_end(self):
        torch.save(self.state_dict(), "model.pt")

L.Trainer(TRAINER).fit(Model(), Data())
"""
)


@pytest.mark.parametrize(
    "trainer", ["devices=4", "devices=[0, 1]", 'devices="auto", strategy="ddp"', "devices=1, num_nodes=2"]
)
def test_what_lightning_does_not_do_is_found_on_several_devices(trainer):
    codes = found(LIGHTNING.replace("TRAINER", trainer))
    assert {"RK306", "RK309", "RK401"} <= codes
    assert "RK311" not in codes  # its own sampler shuffles


def test_on_one_device_lightning_keeps_the_order_and_nobody_else_writes():
    assert found(LIGHTNING.replace("TRAINER", "devices=1")) == {"RK311"}


KEYWORDS = (
    HEAD
    + """
dist.init_process_group("gloo")
data = datasets.MNIST("data")
FIRST
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(784, 10))
for x, y in loader:
    model(x).sum().backward()
"""
)


@pytest.mark.parametrize(
    ("first", "fires"),
    [
        ('options = {"batch_size": 32}\noptions.update({"shuffle": True})\nloader = DataLoader(data, **options)', True),
        ("options = dict(batch_size=32)\nloader = DataLoader(data, **options)", True),
        ("def make(data, **options):\n    return DataLoader(data, **options)\nloader = make(data, batch_size=8)", True),
        ('options = {}\noptions["sampler"] = DistributedSampler(data)\nloader = DataLoader(data, **options)', False),
        ("def make(data, **more):\n    return DataLoader(data, **more)\nloader = make(data, sampler=choose())", False),
        ("import settings\nloader = DataLoader(data, **settings.loader)", False),
    ],
)  # fmt: skip
def test_a_loader_is_judged_by_what_its_keywords_hold(first, fires):
    assert ("RK301" in found(KEYWORDS.replace("FIRST", first))) == fires


@pytest.mark.parametrize(("name", "divides"), [("ddp", False), ("deepspeed", False), ("accelerate", True)])
def test_a_loader_without_a_sampler_is_found_unless_the_framework_divides_it(name, divides):
    start, model, backward = STARTED[name]
    loader = MISTAKES.replace(
        "DataLoader(train, batch_size=32, sampler=DistributedSampler(train))",
        "DataLoader(train, batch_size=32, shuffle=True)",
    )
    text = HEAD + start + loader + f"model = {model}\n" + TRAINING.replace("BACKWARD", backward)
    assert ("RK301" in found(text)) != divides
