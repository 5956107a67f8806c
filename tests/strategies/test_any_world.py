"""``exact="any-world"``: the same bits on any number of processes, also with dropout and BatchNorm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.runtime.digest import digest

WORLDS = (1, 3, 4)  # and 2, from which a run goes on with 4


class Net(nn.Module):
    def __init__(self, *, smooth: bool = False, spare: bool = False) -> None:
        """``smooth``: nothing in it depends on how a batch is shared out. ``spare``: a layer that nobody uses."""
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.Identity() if smooth else nn.BatchNorm1d(4)
        self.drop = nn.Identity() if smooth else nn.Dropout(0.3)
        self.last = nn.Linear(16, 3)
        self.spare = nn.Linear(2, 2) if spare else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels = self.norm(self.first(x).view(-1, 4, 4))  # a shard of one sample has statistics, too
        return self.last(self.drop(torch.tanh(channels.flatten(1))))


def shaken(columns: Any, random: Any) -> Any:
    x, y = columns
    return x + random.uniform(6).to(x.dtype), y


def data(samples: int, *, augmented: bool) -> rankup.ResidentData:
    x = torch.linspace(-1, 1, samples * 6).reshape(samples, 6).sin() * 2
    y = torch.stack([x.sum(1), x[:, 0] * 3, x[:, 1].square() - 1], dim=1)
    return rankup.ResidentData(x, y, transform=shaken if augmented else None)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02, weight_decay=0.1)


def trained(
    options: dict[str, Any] | None = None,
    prepare: dict[str, Any] | None = None,
    *,
    samples: int = 45,
    until: int = 10**6,
    net: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Two epochs in steps of 8, of which the last one has 5 samples; left after step ``until``."""
    run = rankup.init(**({"seed": 3, "exact": "any-world"} | (options or {})))
    model, opt, feed = run.prepare(
        Net(**(net or {})),
        adam,
        data(samples, augmented=not net),
        global_batch=8,
        drop_last=False,  # of a shard of one sample the norm sees four values per channel
        **(prepare or {}),
    )
    for epoch in run.epochs(2, feed):
        for x, y in epoch:
            loss = F.mse_loss(model(x), y)
            run.backward(loss)
            if step := run.step(opt):
                norm = step.grad_norm
                if run.global_step + 1 == until:
                    return {}
        with torch.no_grad():  # behind the loop, too, all ranks draw alike
            drawn = torch.rand(3)
    seen = run.sum(sum(len(x) for x, _ in run.batches(data(samples, augmented=False), global_batch=8)))
    weights = {name: tensor.clone() for name, tensor in run._context.models[0].state_dict().items()}
    moments = [sorted(held.items()) for held in opt.state_dict()["state"].values()]
    return {
        "weights": weights,
        "bits": digest([weights, moments, drawn]),
        "norm": norm,
        "seen": seen,
    }


def test_any_number_of_processes_trains_the_same_bits():
    results = [rank for world in WORLDS for rank in run_ranks(trained, world)]
    assert len({result["bits"] for result in results}) == 1
    assert {result["seen"] for result in results} == {45}


@pytest.mark.slow
def test_so_do_clipped_gradients_and_their_norm():
    results = [run_ranks(trained, world, {}, {"clip": 0.05})[0] for world in (1, 3)]
    assert results[0]["bits"] == results[1]["bits"]
    assert results[0]["norm"] == results[1]["norm"] > 0.05


@pytest.mark.slow
def test_a_run_that_goes_on_with_other_processes_ends_with_the_same_bits(tmp_path: Path):
    whole = run_ranks(trained, 1)[0]
    snapshots = {"snapshots": rankup.Snapshots(every="3 steps", directory=tmp_path, asynchronous=False)}
    for world, until in ((2, 4), (4, 8), (1, 10**6)):  # the last step of an epoch is the 6th
        last = run_ranks(_trained_until, world, snapshots, until)[0]
    assert last["bits"] == whole["bits"]


def _trained_until(options: dict[str, Any], until: int) -> dict[str, Any]:
    return trained(options, until=until)


@pytest.mark.slow
def test_it_is_the_mean_over_the_global_batch():
    plain, sharded = (run_ranks(_smooth, 2, exact)[0] for exact in ("same-world", "any-world"))
    assert max((plain[name] - sharded[name]).abs().max().item() for name in plain) < 1e-12


def _smooth(exact: str) -> dict[str, torch.Tensor]:
    return trained({"precision": "fp64", "exact": exact}, net={"smooth": True})["weights"]


@pytest.mark.slow
def test_batches_smaller_than_the_shards_leave_some_empty_and_change_nothing():
    few = {"virtual_shards": 7}  # the last batch has 5 samples
    bits = {run_ranks(trained, world, few)[0]["bits"] for world in (1, 3)}
    assert len(bits) == 1


def _unused(prepare: dict[str, Any]) -> str | bool:
    try:
        found = trained({}, prepare, net={"spare": True})
    except rankup.RankupError as error:
        return error.code
    fresh = rankup.init(seed=3)  # weights as they were drawn
    net = Net(spare=True)
    return bool(fresh.world.is_main) and torch.equal(found["weights"]["spare.weight"], net.spare.weight)


def test_a_parameter_without_a_gradient_is_an_error_unless_it_is_meant():
    assert run_ranks(_unused, 2, {}) == ["unused-parameter"] * 2
    assert run_ranks(_unused, 1, {"find_unused_parameters": True}) == [
        True
    ]  # left alone by weight decay as well


def _refused(options: dict[str, Any], prepare: dict[str, Any]) -> str:
    try:
        trained(options, prepare)
    except rankup.RankupError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("code", "options", "prepare"),
    [
        ("unknown-exact", {"exact": "bitwise"}, {}),
        ("bad-virtual-shards", {"virtual_shards": 0}, {}),
        ("too-few-virtual-shards", {"virtual_shards": 1}, {}),
        ("any-world-strategy", {"strategy": "fsdp"}, {}),
        ("not-any-world", {}, {"accumulate": 2}),
        ("not-any-world", {}, {"sync_batchnorm": True}),
    ],
)
def test_what_does_not_go_with_it_is_refused(code: str, options: dict[str, Any], prepare: dict[str, Any]):
    assert run_ranks(_refused, 2, options, prepare) == [code, code]


def _registered(per_rank: bool) -> str:
    run = rankup.init(exact="any-world")
    try:
        run.register(hidden=[], per_rank=per_rank)
    except rankup.RankupError as error:
        return error.code
    return ""


def test_state_of_each_rank_s_own_is_refused():
    """A hidden state carried from batch to batch would go from one virtual shard to the next."""
    assert run_ranks(_registered, 1, True) == ["not-any-world"]
    assert run_ranks(_registered, 1, False) == [""]


class Observer(torch.nn.Module):
    """Its range gets its shape in the first forward pass, as that of torch's quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("range", torch.zeros(0))
        self.range: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.range = x.detach().amax(0)
        return x


def _observed() -> str:
    run = rankup.init(exact="any-world", virtual_shards=4)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), Observer())
    data = rankup.ResidentData(torch.ones(8, 1))
    model, opt, data = run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4)
    try:
        for x in run.steps(data, epochs=1):
            run.backward(model(x).mean())
            run.step(opt)
    except rankup.RankupError as error:
        return error.code
    return ""


def test_buffers_that_get_their_shape_in_a_forward_pass_are_refused():
    assert run_ranks(_observed, 1) == ["not-any-world"]


def test_another_number_of_virtual_shards_does_not_go_on_from_a_snapshot(tmp_path: Path):
    snapshots = rankup.Snapshots(every="2 steps", directory=tmp_path, asynchronous=False)
    run_ranks(_trained_until, 1, {"snapshots": snapshots}, 3)
    assert run_ranks(_refused, 1, {"snapshots": snapshots, "virtual_shards": 8}, {}) == [
        "other-virtual-shards"
    ]


def _statistics(samples: int) -> tuple[list[float], int]:
    torch.set_num_threads(2)
    run = rankup.init(seed=3, exact="any-world", precision="fp64")
    x = torch.arange(float(samples))[:, None]
    net = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0), nn.Linear(1, 1))
    model, opt, feed = run.prepare(net, adam, rankup.ResidentData(x), global_batch=samples, shuffle=False)
    for batch in run.steps(feed, epochs=1):
        run.backward(model(batch).mean())
        run.step(opt)
    return net[0].running_mean.tolist(), torch.get_num_threads()


def test_batch_statistics_are_weighed_by_what_a_shard_holds_and_kernels_have_one_thread():
    # Shards of 3, 2, 2 and 2 samples: the mean over shards would be another one than that over samples.
    assert run_ranks(_statistics, 2, 9) == [([pytest.approx(4.0)], 1)] * 2


def _misused(how: str, shards: int = 4) -> str:
    run = rankup.init(exact="any-world", virtual_shards=shards)
    model, opt, feed = run.prepare(Net(), adam, data(16, augmented=False), global_batch=8)
    try:
        for x, y in run.steps(feed, epochs=1):
            loss = F.mse_loss(model(x), y)
            if how == "plain-backward":
                loss.backward()
                opt.step()
                opt.zero_grad()
                continue
            if how == "shard-sum":
                run.mean(loss)
            run.backward(loss)
            stepped = run.step(opt)
            if how == "any-world-steps" and stepped:
                run.backward(F.mse_loss(model(x), y))
                run.step(opt)
            elif how == "shard-state" and stepped:
                run.state.state_dict()
    except rankup.RankupError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("how", "world_size", "shards"),
    [
        ("plain-backward", 1, 4),  # which no shard would know of
        ("any-world-steps", 1, 1),
        ("any-world-steps", 2, 4),
        ("shard-sum", 2, 3),
        ("shard-sum", 4, 4),  # right there, but not on other numbers of ranks
        ("shard-state", 1, 4),
    ],
)
def test_a_loop_that_would_not_be_the_same_anywhere_is_an_error(how: str, world_size: int, shards: int):
    assert run_ranks(_misused, world_size, how, shards) == [how] * world_size


def in_channels_last(fused: bool) -> dict[str, torch.Tensor]:
    """Weights in the order of memory that mnist-cnn has, under Adam."""
    run = rankup.init(seed=1, precision="fp64", exact="any-world", virtual_shards=2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).to(
        memory_format=torch.channels_last
    )
    data = rankup.ResidentData(torch.linspace(-1, 1, 8 * 48).sin().view(8, 3, 4, 4))
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.Adam(p, lr=0.1, fused=fused), data, global_batch=4
    )
    for x in run.steps(feed, epochs=2):
        run.backward((model(x) - x.mean()).square().mean())
        run.step(opt)
    return net.state_dict()


def test_a_fused_optimizer_finds_each_gradient_in_the_memory_order_of_its_weight():
    fused, plain = run_ranks(in_channels_last, 1, True)[0], run_ranks(in_channels_last, 1, False)[0]
    assert all(torch.allclose(fused[name], plain[name], atol=1e-12) for name in plain)


def joined_later(exact: str) -> str:
    """A head that no optimizer has in the first epoch, and whose gradients nobody clears; run.step is used alone."""
    run = rankup.init(seed=3, exact=exact, precision="fp64")
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.SGD(p[:2], lr=0.02), data(45, augmented=False), global_batch=8
    )
    for epoch in run.epochs(2, feed):
        if epoch.index == 1:
            opt.add_param_group({"params": list(net[2].parameters())})
        for x, y in epoch:
            run.backward(F.mse_loss(model(x), y))
            run.step(opt)
    return " ".join(f"{value:.9f}" for p in net.parameters() for value in p.detach().flatten().tolist())


@pytest.mark.slow
def test_gradients_that_no_optimizer_has_are_added_up_once_on_any_number_of_processes():
    (plainly,) = run_ranks(joined_later, 1, "same-world")
    for world_size in WORLDS:
        assert set(run_ranks(joined_later, world_size, "any-world")) == {plainly}, world_size
