"""Precisions by device, and the loss scale of fp16: an overflow anywhere stops the step everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.loop.loss_scaling import DOUBLE_AFTER, LossScaler
from rankup.runtime.loop.precision import make_precision
from rankup.strategies import make_strategy

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["fp16", "tf32"])
def test_what_a_cpu_has_not_is_one_clear_error(name):
    with pytest.raises(rankup.RankupError, match=f"precision {name} is for GPUs") as caught:
        rankup.init(precision=name, device="cpu")
    assert caught.value.code == "precision-needs-gpu"


def test_an_unknown_precision_is_named_with_those_there_are():
    with pytest.raises(rankup.RankupError, match="bf61") as caught:
        make_precision("bf61", CPU)
    assert "bf16" in str(caught.value)


def test_tf32_is_a_switch_of_the_device_and_fp32_turns_it_off(monkeypatch):
    said = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", said.append)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    for name in ("tf32", "fp32"):
        make_precision(name, torch.device("cuda"))
        said.append(torch.backends.cudnn.allow_tf32)
    assert said == ["high", True, "highest", False]


def scaled(scaler: LossScaler, net: nn.Module, batch: object, factor: float = 1.0) -> bool:
    (factor * net(torch.ones(1, 2)).sum() * scaler.factor(batch)).backward()
    return scaler.finite(list(net.parameters()), make_strategy("none"), CPU)


@pytest.mark.slow
def test_the_scale_halves_after_an_overflow_and_doubles_after_many_good_steps():
    scaler, net = LossScaler(), nn.Linear(2, 1)
    assert scaled(scaler, net, 0)
    assert net.weight.grad.tolist() == [[2.0**16, 2.0**16]]
    assert not scaled(scaler, net, 1, float("inf"))
    net.zero_grad()
    assert scaler.factor(1) == 2.0**16  # a batch keeps its scale, whatever its first optimizer found
    assert scaler.factor(2) == 2.0**15
    for batch in range(3, 3 + DOUBLE_AFTER):
        net.zero_grad()
        scaled(scaler, net, batch)
    assert (scaler.factor("next"), scaler.skipped) == (2.0**16, 1)


def test_a_scale_goes_on_from_its_state_also_between_an_overflow_and_the_next_batch():
    scaler, net = LossScaler(), nn.Linear(2, 1)
    scaled(scaler, net, 0, float("nan"))
    again = LossScaler()
    again.load_state_dict(scaler.state_dict())
    assert again.factor(1) == scaler.factor(1) == 2.0**15


def overflow_on_one_rank(name: str) -> list[tuple[list[float], float | None]]:
    """Three steps in fp16's way; in the second, one rank alone overflows."""
    run = rankup.init(seed=1, strategy=name)
    run._context.gradients.scaler = LossScaler()  # as precision fp16 makes it, which the CPU refuses
    net = nn.Linear(4, 1, bias=False)
    nn.init.ones_(net.weight)
    data = rankup.ResidentData(torch.ones(12, 4))
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.5), data, global_batch=4, clip=0.1)
    seen = []
    for step, x in enumerate(run.steps(feed, epochs=1)):
        wrong = float("inf") if step == 1 and run.world.rank == run.world.world_size - 1 else 1.0
        run.backward(model(x).mean() * wrong)
        taken = run.step(opt)
        weight = net.weight.full_tensor() if hasattr(net.weight, "full_tensor") else net.weight
        seen.append((weight.flatten().tolist(), taken and taken.grad_norm.item()))
    return seen


@pytest.mark.parametrize(("name", "world_size"), [("none", 1), ("ddp", 2), ("fsdp", 2)])
def test_an_overflow_on_one_rank_is_a_step_of_none_and_clipping_sees_unscaled_gradients(name, world_size):
    for first, second, third in run_ranks(overflow_on_one_rank, world_size, name):
        assert second[1] is None
        assert second[0] == first[0]
        assert third[0] != first[0]
        assert first[1] == third[1] == pytest.approx(2.0)  # four gradients of 1, not of 65536
        assert first[0] == pytest.approx([1 - 0.5 * 0.1 / 2] * 4, rel=1e-4)


def clipped_by_the_loop(kind: str, scaled: bool) -> list[float]:
    """Two losses in a body, and a clip between the backwards and the step."""
    options = {"exact": "any-world"} if kind == "any-world" else {}
    run = rankup.init(seed=1, **options)
    run._context.gradients.scaler = LossScaler() if scaled else None
    net = nn.Linear(4, 1)
    nn.init.ones_(net.weight)
    data = rankup.ResidentData(torch.linspace(-1, 1, 48).reshape(12, 4))
    model, opt, feed = run.prepare(
        net,
        lambda p: torch.optim.SGD(p, lr=0.5),
        data,
        global_batch=4,
        accumulate=2 if kind == "accumulate" else 1,
    )
    for x in run.steps(feed, epochs=1):
        run.backward(model(x).square().mean())
        run.backward(model(x).mean())
        if run.batch.last:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        run.step(opt)
    return [*net.weight.flatten().tolist(), net.bias.item()]


@pytest.mark.repeated
@pytest.mark.parametrize("kind", ["whole", "accumulate", "any-world"])
def test_a_loop_that_clips_by_itself_sees_unscaled_gradients(kind):
    for rank in run_ranks(clipped_by_the_loop, 2, kind, True):
        (plain, _) = run_ranks(clipped_by_the_loop, 2, kind, False)
        assert rank == pytest.approx(plain, rel=1e-5)


def forgets_to_use_ours() -> str:
    run = rankup.init(seed=1)
    run._context.gradients.scaler = LossScaler()
    data = rankup.ResidentData(torch.ones(4, 2))
    model, opt, feed = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.5), data, global_batch=4
    )
    try:
        for x in run.steps(feed, epochs=1):
            model(x).sum().backward()
            opt.step()
    except rankup.RankupError as error:
        return error.code
    return "nothing"


def test_a_plain_backward_in_fp16_is_an_error():
    assert run_ranks(forgets_to_use_ours, 1) == ["plain-backward"]
