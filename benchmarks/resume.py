"""A training is interrupted in the middle of an epoch and resumed: how far its weights are from the uninterrupted ones.

An epoch has ten steps, shuffled, with dropout. Each library saves after the fifth step as its documentation shows, and
a new process resumes. The number is the largest absolute difference of a weight from the same library's uninterrupted
training. All three processes are seeded in the same way.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contest import Claim, Result, contest
from benchmarks.worker import Play
from rankup.core.shell import run as run_process

STEPS, SAVED_AFTER, BATCH, SEED = 10, 5, 64, 7
NEEDS = {"Accelerate": "accelerate", "Lightning": "lightning"}
Weights = dict[str, torch.Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS * BATCH, 64, generator=generator)
    return TensorDataset(x, x[:, :10].argmax(dim=1))


def ours(phase: str, folder: Path) -> Weights:
    import rankup

    snapshots = rankup.Snapshots(every=f"{SAVED_AFTER} steps", directory=folder / phase.strip("12"))
    run = rankup.init(seed=SEED, device="cpu", snapshots=snapshots)
    model, opt, data = run.prepare(network(), adam, dataset(), global_batch=BATCH)
    for x, y in run.steps(data, epochs=1):
        if phase == "half1" and run.global_step == SAVED_AFTER:
            break
        F.cross_entropy(model(x), y).backward()
        opt.step()
        opt.zero_grad()
    return model.state_dict()


def accelerate(phase: str, folder: Path) -> Weights:
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(SEED)
    library = Accelerator(cpu=True)
    bare = network()
    loader = DataLoader(dataset(), batch_size=BATCH, shuffle=True)
    model, opt, batches = library.prepare(bare, adam(bare.parameters()), loader)
    if phase == "half2":
        library.load_state(str(folder / "state"))
        batches = library.skip_first_batches(batches, SAVED_AFTER)
    for step, (x, y) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(x), y)
        library.backward(loss)
        opt.step()
        opt.zero_grad()
        if phase == "half1" and step == SAVED_AFTER:
            library.save_state(str(folder / "state"))
            break
    weights: Weights = library.unwrap_model(model).state_dict()
    return weights


def lightning(phase: str, folder: Path) -> Weights:
    from lightning import LightningModule, Trainer, seed_everything

    checkpoint = folder / "half.ckpt"

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adam(self.parameters())

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            if phase == "half1" and index + 1 == SAVED_AFTER:
                self.trainer.save_checkpoint(checkpoint)
                os._exit(0)  # ends without clean-up, like a kill

    seed_everything(SEED)
    module = Module()
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
    )
    loader = DataLoader(dataset(), batch_size=BATCH, shuffle=True)
    trainer.fit(module, loader, ckpt_path=str(checkpoint) if phase == "half2" else None)
    return module.net.state_dict()


LIBRARIES: dict[str, Callable[[str, Path], Weights]] = {
    "ours": ours,
    "Accelerate": accelerate,
    "Lightning": lightning,
}


def contender(name: str) -> Play:
    def play() -> float:
        folder = Path(tempfile.mkdtemp(prefix="rankup-bench-"))
        try:
            for phase in ("whole", "half1", "half2"):
                done = run_process(
                    [sys.executable, "-m", "benchmarks.resume", name, phase, str(folder)], timeout=300
                )
                if done.code != 0:
                    raise SystemExit(done.out + done.err)
            whole, resumed = (
                torch.load(folder / f"{phase}.pt", weights_only=True) for phase in ("whole", "half2")
            )
            return max((whole[key] - resumed[key]).abs().max().item() for key in whole)
        finally:
            shutil.rmtree(folder)

    return play


CONTENDERS: dict[str, Callable[[], Play]] = {name: partial(contender, name) for name in LIBRARIES}


def run(quick: bool) -> Result:
    names = [name for name in CONTENDERS if name not in NEEDS or find_spec(NEEDS[name])]
    rounds = contest("resume", names, {}, threads=1, rounds=1 if quick else 2, processes=1)
    return Result(
        "resume",
        "Weights after a resume in the middle of an epoch",
        "largest difference",
        {"steps": STEPS, "saved after": SAVED_AFTER, "batch": BATCH, "network": "MLP 64-32-10, dropout 0.2"},
        rounds,
        [Claim("ours", "ours", None, 0.0, at_most=True)]
        + [Claim(name, name, None, None, at_most=True) for name in names if name != "ours"],
    )


if __name__ == "__main__":
    library, phase_, folder_ = sys.argv[1:]
    torch.save(LIBRARIES[library](phase_, Path(folder_)), Path(folder_) / f"{phase_}.pt")
