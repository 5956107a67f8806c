"""One script with every member of ``Run``, as a user would write it, beside a plain loop without rankup."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks

SAMPLES, BATCH, EPOCHS, CLIP = (
    23,
    7,
    3,
    0.6,
)  # 23 = 3 × 7 + 2: on three ranks one is empty in an epoch's last step


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-2, 2, SAMPLES * 4, dtype=torch.float64).sin().reshape(SAMPLES, 4) * 3
    return x, x.roll(1, dims=1) + 0.1


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 5)).double()


def contrast(a: torch.Tensor, all_b: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.normalize(a) @ F.normalize(all_b).T / 0.2, rows)


def plain() -> dict[str, Any]:
    """Contrastive steps, clipped, with a schedule per step; the best evaluation is kept."""
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.95)
    best, norms, losses = float("inf"), [], []
    for _ in range(EPOCHS):
        total = 0.0
        for a, b in zip(*(column.split(BATCH) for column in pairs()), strict=True):
            loss = contrast(net(a), net(b), torch.arange(len(a)))
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), CLIP).item())
            opt.step()
            sched.step()
            opt.zero_grad()
            total += loss.item() * len(a)
        losses.append(total / SAMPLES)
        with torch.no_grad():
            a, b = pairs()
            best = min(best, (net(a) - b[:, :1]).square().sum().item() / SAMPLES)
    return {"weights": net.state_dict(), "best": best, "norms": norms, "losses": losses}


def script(folder: str) -> dict[str, Any]:
    run = rankup.init(seed=3, precision="fp64", snapshots=rankup.Snapshots(every="off", directory=folder))
    assert rankup.run_directory() is None
    with rankup.first(directory=folder):
        (Path(folder) / "fetched").touch()
    model, opt, data = run.prepare(
        network(),
        lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9),
        rankup.ResidentData(*pairs()),
        global_batch=BATCH,
        shuffle=False,
        clip=CLIP,
    )
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.95)
    values = run.register(sched=sched, best=float("inf"))
    norms, losses, counted = [], [], 0

    def train(a: torch.Tensor, b: torch.Tensor) -> None:
        first, second = model(torch.cat([a, b])).chunk(2)
        everyones, rows = run.gather(second, rows=True)
        loss = contrast(first, everyones, rows)
        run.backward(loss)
        run.meter.add(loss=loss)
        if step := run.step(opt):
            assert step.grad_norm is not None
            norms.append(step.grad_norm.item())
            run.log(norm=step.grad_norm)
            sched.step()

    run.forget("norms", "losses", "counted")
    for epoch in run.epochs(EPOCHS - 1, data):
        for a, b in epoch:
            train(a, b)
            counted += run.batch.samples
        losses.append(run.meter.means()["loss"])
        evaluate(run, model, values)
    run.save()
    saved = run.state.state_dict()
    run.state.load_state_dict(saved)
    _, _, last = run.prepare(model, None, rankup.ResidentData(*pairs()), global_batch=BATCH, shuffle=False)
    for a, b in run.steps(last, epochs=1):  # the flat form, for the last epoch
        train(a, b)
        counted += run.batch.samples
    losses.append(run.meter.means()["loss"])
    evaluate(run, model, values)
    assert run.sum(counted) == EPOCHS * SAMPLES and run.global_step == EPOCHS * 4
    assert run.device.type == "cpu" and run.strategy.name == ("ddp" if run.world.world_size > 1 else "none")
    run.print(f"{run.mean(1.0, counted)} of all samples are counted", end=".\n", flush=False)
    run.save_model(Path(folder) / "model.pt")
    return {"best": values.best, "norms": norms, "losses": losses, "main": run.world.is_main}


def evaluate(run: rankup.Run, model: nn.Module, values: Any) -> None:
    total = 0.0
    for a, b in run.batches(rankup.ResidentData(*pairs()), global_batch=BATCH):
        total += (model(a) - b[:, :1]).square().sum().item()
    loss = run.sum(total) / SAMPLES
    run.log(tested=loss)
    values.best = min(values.best, loss)


@pytest.mark.repeated
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_script_with_every_member_trains_the_model_of_a_plain_loop(tmp_path: Path, world_size: int):
    expected = plain()
    results = run_ranks(script, world_size, str(tmp_path))
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    for name, weight in expected["weights"].items():
        assert torch.allclose(weights[name], weight, rtol=0, atol=1e-12), name
    for rank, result in enumerate(results):
        assert result["main"] == (rank == 0)
        for key in ("best", "norms", "losses"):
            assert result[key] == pytest.approx(expected[key], rel=1e-10), key
    assert list(tmp_path.glob("step-*/manifest.json"))


def test_the_script_uses_every_member():
    tree = ast.parse(inspect.getsource(script) + inspect.getsource(evaluate))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "run"
    }
    assert used == {name for name in dir(rankup.init()) if not name.startswith("_")}
