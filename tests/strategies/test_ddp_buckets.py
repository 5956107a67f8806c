"""DDP's buckets after a resume are those of the run before: with three ranks a sum's last bit depends on them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.strategies import make_strategy

STEPS, WIDTH = 5, 11


class Net(nn.Module):
    """(n, 11) → (n, 11) in residual blocks that are used in another order than they are declared in."""

    def __init__(self, unused: bool = False, shared: bool = False, blocks: int = 8) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(20 + i, 20 + i) for i in range(blocks))
        self.first = nn.ModuleList(nn.Linear(WIDTH, 20 + i) for i in range(blocks))
        self.last = nn.ModuleList(nn.Linear(20 + i, WIDTH) for i in range(blocks))
        self.order = [i for i in (5, 2, 0, 1, 3, 4, 6, 7) if i < blocks]
        self.spare = nn.Linear(9, 9) if unused else None
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in self.order:
            x = x + self.last[i](torch.tanh(self.inner[i](torch.tanh(self.first[i](x)))))
            if self.shared:
                x = x + self.last[0](torch.tanh(self.first[0](x)))
        return x


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def data() -> rankup.ResidentData:
    generator = torch.Generator().manual_seed(5)
    short = STEPS * 12 - 5  # the last batch
    return rankup.ResidentData(torch.randn(short, WIDTH, generator=generator))


class Case:
    """One training, of one model or more; ``train`` gives the weights, and its state after ``at`` steps."""

    def __init__(
        self,
        *,
        strategy: str = "ddp",
        options: dict[str, Any] | None = None,
        nets: int = 1,
        freeze: Callable[[Net], None] | None = None,
        at: int = 3,
        asleep: bool = False,
        zeroed: bool = False,
        net: dict[str, Any] | None = None,
        **prepare: Any,
    ) -> None:
        self.strategy, self.options, self.nets, self.freeze = strategy, options or {}, nets, freeze
        self.at, self.asleep, self.net, self.prepare = at, asleep, net or {}, prepare
        self.zeroed = zeroed

    def train(self, saved: Any = None) -> tuple[list[torch.Tensor], Any]:
        run = rankup.init(seed=1, strategy=make_strategy(self.strategy, **self.options))
        nets = [Net(**self.net) for _ in range(self.nets)]
        for net in nets:
            if self.freeze is not None:
                self.freeze(net)
        others = [run.prepare(net, sgd) for net in nets[1:]]
        model, opt, feed = run.prepare(nets[0], sgd, data(), global_batch=12, **self.prepare)
        pairs = [(model, opt), *((model, opt) for model, opt, _ in others)]
        if saved is not None:
            run.state.load_state_dict(saved)
        state = None
        for x in run.steps(feed, epochs=1):
            stepped = False
            for model, opt in pairs:
                if self.asleep:  # between its turns, as a discriminator is
                    model.requires_grad_(True)
                if self.zeroed:  # gradients stay where they are, in DDP's buckets
                    opt.zero_grad(set_to_none=False)
                    model(x).square().mean().backward()
                    opt.step()
                    stepped = True
                    continue
                run.backward(model(x).square().mean())
                stepped = run.step(opt)
                if self.asleep:
                    model.requires_grad_(False)
            if stepped and saved is None and run.global_step == self.at - 1:
                state = _copy(run.state.state_dict())
        return [_whole(p).clone() for net in nets for p in net.parameters()], state


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copy, value))
    return copy.deepcopy(value)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()


def freeze_two(net: Net) -> None:
    net.first[2].requires_grad_(False)
    net.last[5].weight.requires_grad_(False)


CASES: dict[str, Case] = {
    "plain": Case(),
    "accumulation": Case(accumulate=3),
    "zeroed in place": Case(zeroed=True),
    "frozen between its turns": Case(nets=2, asleep=True),
    "unused": Case(net={"unused": True}, find_unused_parameters=True),
    "static graph after one step": Case(options={"static_graph": True}, at=1),
    # From here on the campaign's.
    "after one step": Case(at=1),
    "frozen": Case(freeze=freeze_two),
    "unfrozen later, frozen between its turns": Case(freeze=freeze_two, asleep=True),
    "shared": Case(net={"shared": True}),
    "two models": Case(nets=2),
    "static graph": Case(options={"static_graph": True}),
    "static graph, unused": Case(options={"static_graph": True}, net={"unused": True, "shared": True}),
    "fsdp": Case(strategy="fsdp", net={"blocks": 3}),  # each layer has collectives of its own
    "hsdp": Case(strategy="fsdp", options={"shard_size": 2}, net={"blocks": 3}),
}


def resumed(names: list[str]) -> dict[str, tuple[bool, bool]]:
    """Whether a resumed training ends in the weights of the uninterrupted one; and whether it begins as fresh DDP."""
    warnings.simplefilter("ignore")
    found = {}
    for name in names:
        weights, state = CASES[name].train()
        again, _ = CASES[name].train(_copy(state))
        found[name] = (all(map(torch.equal, weights, again)), state["rank_state"].get("layout") is None)
    return found


def without_layout() -> bool:
    weights, state = CASES["plain"].train()
    state["rank_state"].pop("layout", None)
    return all(map(torch.equal, weights, CASES["plain"].train(state)[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "names"),
    [
        (3, [*CASES][:6]),
        pytest.param(3, [*CASES][6:-1], marks=pytest.mark.campaign),
        pytest.param(4, ["hsdp"], marks=pytest.mark.campaign),
    ],
)
def test_a_resumed_process_sums_gradients_as_the_one_before(world_size: int, names: list[str]) -> None:
    found = run_ranks(resumed, world_size, names)
    for name in names:
        assert [each[name][0] for each in found] == [True] * world_size, name
    assert "plain" not in names or not found[0]["plain"][1]


@pytest.mark.slow
def test_the_layout_of_the_buckets_decides_about_the_last_bit() -> None:
    assert run_ranks(without_layout, 3) == [False] * 3
