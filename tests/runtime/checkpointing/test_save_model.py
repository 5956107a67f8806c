"""``run.save_model``: the user's own keys, whole tensors, one file, from every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.strategies import make_strategy
from rankup.strategies.base import TORCH


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 2)
        self.tied = self.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).tanh())


def trained(folder: str, strategy: str) -> dict[str, list[float]]:
    """Saves in the loop and after it; the final weights by the run itself."""
    run = rankup.init(seed=2, strategy=make_strategy(strategy))
    x = torch.linspace(-1, 1, 72).sin().view(24, 3)
    model, opt, data = run.prepare(
        Net(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(x, x[:, :2]), global_batch=6
    )
    for a, b in run.steps(data, epochs=2):
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        opt.step()
        if run.global_step == 2:
            run.save_model(f"{folder}/middle.pt")
    for name in ("new/model.pt", "model.safetensors"):
        run.save_model(Path(folder) / name, model)
    return (
        {name: value.flatten().tolist() for name, value in model.state_dict().items()}
        if strategy == "ddp"
        else {}
    )


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("strategy", "world_size"), [pytest.param("none", 1, marks=pytest.mark.campaign), ("ddp", 2), ("fsdp", 2)]
)
def test_a_plain_program_loads_what_any_strategy_saved(strategy: str, world_size: int, tmp_path: Path):
    ranks = run_ranks(trained, world_size, str(tmp_path), strategy)
    saved = torch.load(tmp_path / "new" / "model.pt", weights_only=True)
    net = Net()
    net.load_state_dict(saved)
    assert list(saved) == list(net.state_dict())
    if strategy == "ddp":
        assert {name: value.flatten().tolist() for name, value in saved.items()} == ranks[0] == ranks[1]
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    again = safetensors.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(again[name], saved[name]) for name in saved)
    middle = torch.load(tmp_path / "middle.pt", weights_only=True)
    assert not torch.equal(middle["head.weight"], saved["head.weight"])
    assert not list(tmp_path.glob("**/.*"))


def middle_changes_nothing(folder: str, save: bool) -> list[float]:
    run = rankup.init(seed=2)
    x = torch.linspace(-1, 1, 72).sin().view(24, 3)
    model, opt, data = run.prepare(
        Net(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(x, x[:, :2]), global_batch=6
    )
    for a, b in run.steps(data, epochs=2):
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        opt.step()
        if save and run.global_step == 2:
            run.save_model(f"{folder}/middle.pt")
    return [value for tensor in model.state_dict().values() for value in tensor.flatten().tolist()]


def test_saving_in_the_middle_of_an_epoch_changes_no_training(tmp_path: Path):
    assert run_ranks(middle_changes_nothing, 2, str(tmp_path), True) == run_ranks(
        middle_changes_nothing, 2, str(tmp_path), False
    )


def refused(folder: str) -> list[Any]:
    run = rankup.init()
    (Path(folder) / "file").write_text("")
    codes = []

    def code(*words: Any) -> None:
        try:
            run.save_model(*words)
        except rankup.RankupError as error:
            codes.append(error.code)

    code(f"{folder}/a.pt")
    run.prepare(nn.Linear(1, 1), None)
    code(f"{folder}/file/a.pt")  # a file, and no directory
    run.prepare(nn.Linear(1, 1), None)
    code(f"{folder}/a.pt")
    code(f"{folder}/a.pt", nn.Linear(1, 1))
    return codes


def test_what_cannot_be_saved_is_one_error_on_all_ranks_and_leaves_no_file(tmp_path: Path):
    assert (
        run_ranks(refused, 2, str(tmp_path))
        == [["which-model", "model-not-written", "which-model", "not-prepared"]] * 2
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_model_that_is_prepared_again_for_other_data_is_one_model(tmp_path: Path):
    run = rankup.init(device="cpu")
    model, _, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    run.prepare(
        model, lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(torch.ones(4, 1)), global_batch=2
    )
    run.save_model(tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt").keys() == {"weight", "bias"}


def with_its_own_weights(folder: str) -> str:
    """Each rank has loaded the best weights by its own share of the test data."""
    run = rankup.init(seed=2)
    model = run.prepare(Net(), None)[0]
    best = {name: value + 0.1 * run.world.rank for name, value in model.state_dict().items()}
    model.load_state_dict(best)
    try:
        run.save_model(f"{folder}/best.pt")
    except rankup.RankupError as error:
        return f"{error.code}: {error}"
    return ""


def test_ranks_with_weights_of_their_own_are_an_error_and_not_the_first_rank_s_file(tmp_path: Path):
    everyone = run_ranks(with_its_own_weights, 3, str(tmp_path))
    assert all(
        "replicas-differ: body.0.weight is not the same on rank 0 and rank 1" in said
        and "when run.save_model writes it" in said
        for said in everyone
    )
    assert not list(tmp_path.iterdir())


def one_of_two(strategy: str, folder: str) -> None:
    run = rankup.init(precision="fp64", strategy=strategy)
    models = {"a": torch.nn.Linear(4, 2), "b": torch.nn.Linear(2, 1)}
    models, _, _ = run.prepare(models, lambda p: torch.optim.SGD(p, lr=0.1))
    for name, model in models.items():
        run.save_model(f"{folder}/{name}.pt", model)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_of_several_models_with_one_optimizer_is_saved_under_its_own_names(tmp_path: Path, strategy: str):
    if strategy == "fsdp" and TORCH < (2, 8):
        pytest.skip("fsdp on CPUs needs torch 2.8")
    run_ranks(one_of_two, 2, strategy, str(tmp_path))
    for name, shape in (("a", (2, 4)), ("b", (1, 2))):
        saved = torch.load(tmp_path / f"{name}.pt")
        assert saved.keys() == {"weight", "bias"}
        assert saved["weight"].shape == shape
