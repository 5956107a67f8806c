"""A state is its model's, not its strategy's: what one strategy has saved, another goes on from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.nn import functional as F
from toy import adam, everywhere, largest_difference, prepared, strategy

import rankup
from ranks import run_ranks
from rankup.strategies.none import NoStrategy
from rankup.strategies.state import load_state, state, target, whole_weights


def begun(name: str, folder: Path | None, steps: int) -> dict[str, Any]:
    """Three steps and a save, or a load and what is left of five."""
    warnings.simplefilter("ignore")  # dcp's words about the CPU
    run = rankup.init(seed=2, precision="fp64", strategy=strategy(name))
    model, opt, feed = prepared(run, 40, adam)
    inner = run._context.models[0]
    if folder is not None and any(folder.iterdir()):
        described = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        made = target(run._context.strategy, inner, opt, unflatten(described))
        dcp.load(made, checkpoint_id=folder)
        load_state(run._context.strategy, inner, opt, made)
        feed.position.go_to(0, 3)
    for done, (x, y) in enumerate(run.steps(feed, epochs=1), start=feed.position.step + 1):
        run.strategy.forward_backward(model, F.mse_loss, x, y)
        run.step(opt)
        if done == steps:
            break
    if steps == 3:
        dcp.save(state(run._context.strategy, inner, opt), checkpoint_id=folder)
    counts = {str(fields["step"].item()) for fields in opt.state.values()}
    return {"weights": everywhere(whole_weights(run._context.strategy, inner), name), "adam": counts}


def unflatten(described: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's fields in a checkpoint, as tensors without memory."""
    fields: dict[str, dict[str, Any]] = {}
    for key, what in described.items():
        if key.startswith("optimizer.state."):
            name, _, field = key.removeprefix("optimizer.state.").rpartition(".")
            fields.setdefault(name, {})[field] = torch.empty(
                what.size, dtype=what.properties.dtype, device="meta"
            )
    return {"optimizer": {"state": fields}}


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, torch.Tensor]:
    return run_ranks(begun, 1, "ddp", None, 5)[0]["weights"]


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("ddp", "fsdp"), ("tp", "pp"), ("pp", "fsdp")),
        *(pytest.param("fsdp", name, marks=pytest.mark.campaign) for name in ("ddp", "tp")),
    ],
)
def test_training_goes_on_under_another_strategy(tmp_path, uninterrupted, first, second):
    run_ranks(begun, 2, first, tmp_path, 3)
    for rank in run_ranks(begun, 2, second, tmp_path, 5):
        assert largest_difference(rank["weights"], uninterrupted) < 1e-12
        assert rank["adam"] == {"5.0"}


def test_a_state_of_two_ranks_is_read_by_one_process(tmp_path, uninterrupted):
    run_ranks(begun, 2, "fsdp", tmp_path, 3)
    assert largest_difference(run_ranks(begun, 1, "ddp", tmp_path, 5)[0]["weights"], uninterrupted) < 1e-12


def before_the_first_step() -> tuple[int, int, str]:
    run = rankup.init(precision="fp64", strategy=strategy("fsdp"))
    _, opt, _ = prepared(run, 8, adam)
    inner = run._context.models[0]
    saved = state(run._context.strategy, inner, opt)
    load_state(run._context.strategy, inner, opt, saved)
    renamed = {**saved, "model": {name.replace("blocks", "layers"): t for name, t in saved["model"].items()}}
    try:
        load_state(run._context.strategy, inner, opt, renamed)
    except rankup.RankupError as error:
        return len(saved["optimizer"]["state"]), len(opt.state), error.code
    return -1, -1, "nothing"


def test_an_optimizer_that_has_not_stepped_has_no_state_and_another_model_is_refused():
    # torch's get_state_dict would step it once to find its fields, and Adam would count that step.
    assert run_ranks(before_the_first_step, 2) == [(0, 0, "other-model")] * 2


@pytest.mark.parametrize("counts_on_device", [True, False])
def test_an_optimizers_fields_lie_where_its_kernels_want_them(counts_on_device):
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2, device="meta")  # as on another device
    trained, opt = torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())
    one(torch.ones(1, 3)).sum().backward()
    trained.step()
    for fields in trained.state.values():
        fields["rows"] = torch.ones(2)  # as Adafactor has: of no parameter's shape
    saved = state(NoStrategy(), one, trained)
    for options in saved["optimizer"]["groups"].values():
        options["capturable"] = counts_on_device
    load_state(NoStrategy(), other, opt, saved)
    for fields in opt.state.values():
        found = {name: value.device.type for name, value in fields.items()}
        counter = "meta" if counts_on_device else "cpu"
        assert found == {"step": counter, "exp_avg": "meta", "exp_avg_sq": "meta", "rows": "meta"}


class Extra(torch.nn.Linear):
    def get_extra_state(self) -> object:
        return {"calls": 1}

    def set_extra_state(self, value: object) -> None:
        pass


def test_what_no_snapshot_would_hold_is_an_error():
    with pytest.raises(rankup.RankupError) as caught:
        state(NoStrategy(), Extra(1, 1), None)
    assert caught.value.code == "extra-state"


def test_moments_take_the_memory_order_of_the_weights_that_they_are_loaded_beside():
    def made(order: torch.memory_format) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = torch.nn.Conv2d(3, 4, 2).to(memory_format=order)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
        net(torch.randn(2, 3, 4, 4).sin()).square().mean().backward()
        optimizer.step()
        return net, optimizer

    plain, before = made(torch.contiguous_format)
    turned, after = made(torch.channels_last)
    load_state(NoStrategy(), turned, after, state(NoStrategy(), plain, before))
    assert after.state[turned.weight]["exp_avg"].stride() == turned.weight.stride()
    for optimizer in (before, after):
        optimizer.step()  # by the gradients that are there still
    assert torch.allclose(plain.weight, turned.weight, atol=1e-6)
