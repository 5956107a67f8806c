"""Replicas that are about to become different models are an error, and what only looks like it is none."""

from __future__ import annotations

import copy
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.snapshots.layout import entries
from rankup.strategies import make_strategy

WIDTH, BATCH, STEPS = 4, 6, 5  # steps per epoch


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(WIDTH, 3)
        self.head = nn.Linear(3, 1)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.encoder(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encode(x))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def data() -> rankup.ResidentData:
    return rankup.ResidentData(torch.linspace(-2, 2, BATCH * STEPS * WIDTH).sin().reshape(-1, WIDTH))


def plain_step(opt: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    opt.zero_grad()
    loss.backward()
    opt.step()


class Setup:
    """A run, its model and optimizer, prepared; ``net`` is the original."""

    def __init__(self, net: nn.Module | None = None, optimizer: Any = sgd, **options: Any) -> None:
        self.run = rankup.init(seed=1, strategy=make_strategy("ddp"), **options)
        self.rank = self.run.world.rank
        self.net = Net() if net is None else net
        if isinstance(optimizer, str):  # built before prepare
            optimizer = sgd(self.net.parameters())
        self.model, self.opt, self.feed = self.run.prepare(self.net, optimizer, data(), global_batch=BATCH)
        self.begun = copy.deepcopy(self.net.state_dict())

    def loop(self, body: Callable[[torch.Tensor, int], None], epochs: int = 1) -> int:
        """How many steps were made."""
        self.steps = 0
        for x in self.run.steps(self.feed, epochs=epochs):
            body(x, self.steps)
            self.steps += 1
        return self.steps

    @property
    def moved(self) -> bool:
        return not all(torch.equal(self.begun[name], value) for name, value in self.net.state_dict().items())


# ---------------------------------------------------------------- what is an error: (error, steps made, weights moved)


def other_method_called() -> Any:
    s = Setup()
    return refused(s, lambda x, i: plain_step(s.opt, s.model.encode(x).mean()))


def other_method_called_later() -> Any:
    s = Setup()
    return refused(s, lambda x, i: plain_step(s.opt, (s.net.encode if i == 3 else s.model)(x).mean()))


def unfrozen_whole() -> Any:
    net = Net().requires_grad_(False)
    s = Setup(net, "built")
    net.requires_grad_(True)
    return refused(s, lambda x, i: plain_step(s.opt, s.model(x).mean()))


def unfrozen_after_forward() -> Any:
    net = Net()
    net.head.requires_grad_(False)
    s = Setup(net, "built")

    def body(x: torch.Tensor, i: int) -> None:
        loss = s.model(x).mean()
        net.head.requires_grad_(True)
        plain_step(s.opt, loss + net.head.weight.square().sum())

    return refused(s, body)


def second_backward_of_another_method() -> Any:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        s.opt.zero_grad()
        s.model(x).mean().backward()
        s.net.encode(x).square().mean().backward()
        s.opt.step()

    return refused(s, body)


def one_rank_skips_its_step() -> Any:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        s.opt.zero_grad()
        s.model(x).mean().backward()
        if s.rank != 1:
            s.opt.step()

    return refused(s, body)


def weights_changed_on_one_rank() -> Any:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        plain_step(s.opt, s.model(x).mean())
        if i == 6 and s.rank == 2:
            with torch.no_grad():
                s.net.head.bias += 1e-4

    return refused(s, body, epochs=3)


def refused(s: Setup, body: Callable[[torch.Tensor, int], None], epochs: int = 1) -> Any:
    try:
        s.loop(body, epochs)
    except RankupError as error:
        return error.code, error.message, s.steps, s.moved
    return None


REFUSED: dict[Callable[[], Any], tuple[str, str, int, bool | None]] = {
    other_method_called: ("gradients-not-reduced", "encoder.weight", 0, False),
    other_method_called_later: ("gradients-not-reduced", "encoder.weight", 3, True),
    unfrozen_whole: ("gradients-not-reduced", "encoder.weight", 0, False),
    unfrozen_after_forward: ("gradients-not-reduced", "head.weight", 0, False),
    second_backward_of_another_method: ("replicas-differ", "gradient of encoder.weight", 1, True),
    one_rank_skips_its_step: ("replicas-differ", "rank 1", 1, None),
    weights_changed_on_one_rank: ("replicas-differ", "head.bias", 10, True),
}

# ----------------------------------------------------------------------------------------- what is right: steps made


def closure() -> int:
    s = Setup(optimizer=lambda p: torch.optim.LBFGS(p, max_iter=2))

    def body(x: torch.Tensor, i: int) -> None:
        def loss() -> torch.Tensor:
            s.opt.zero_grad()
            value = s.model(x).square().mean()
            value.backward()
            return value

        s.opt.step(loss)

    return s.loop(body)


def stepped_late_and_twice() -> int:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        if i:
            s.opt.step()
            s.opt.step()
            s.opt.zero_grad()
        s.model(x).mean().backward()

    return s.loop(body)


def two_optimizers_of_one_model() -> int:
    s = Setup()
    other = torch.optim.SGD(s.net.head.parameters(), lr=0.01)

    def body(x: torch.Tensor, i: int) -> None:
        s.opt.zero_grad()
        s.model(x).mean().backward()
        s.opt.step()
        other.step()

    return s.loop(body)


def adversarial_perturbation() -> int:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        moved = nn.Parameter(x.clone())
        plain_step(torch.optim.SGD([moved], lr=0.1), -s.net(moved).mean())
        plain_step(s.opt, s.model(moved.detach()).mean())

    return s.loop(body)


def generator_and_discriminator() -> int:
    s = Setup()
    d, d_opt, _ = s.run.prepare(nn.Linear(1, 1), sgd)

    def body(x: torch.Tensor, i: int) -> None:
        plain_step(d_opt, d(s.model(x).detach()).mean())
        if i % 2:
            d.requires_grad_(False)
            plain_step(s.opt, d(s.model(x)).mean())
            d.requires_grad_(True)

    return s.loop(body)


def gathered_by_hand() -> int:
    s = Setup()

    def body(x: torch.Tensor, i: int) -> None:
        s.model(x).mean().backward()
        if i % 3 == 2 or i == STEPS - 1:
            s.opt.step()
            s.opt.zero_grad()

    return s.loop(body)


def teacher_and_average() -> int:
    s = Setup()
    teacher, _, _ = s.run.prepare(Net().requires_grad_(False), None)
    average = torch.optim.swa_utils.AveragedModel(s.model)

    def body(x: torch.Tensor, i: int) -> None:
        plain_step(s.opt, (s.model(x) - teacher(x)).square().mean())
        average.update_parameters(s.model)
        average(x)

    return s.loop(body)


def head_replaced() -> int:
    """After prepare, with other random numbers on each rank."""
    s = Setup()
    s.net.head = nn.Linear(3, 1)
    s.opt.add_param_group({"params": list(s.net.head.parameters())})
    return s.loop(lambda x, i: plain_step(s.opt, s.model(x).mean()))


RIGHT = (
    closure,
    stepped_late_and_twice,
    two_optimizers_of_one_model,
    adversarial_perturbation,
    generator_and_discriminator,
    gathered_by_hand,
    teacher_and_average,
    head_replaced,
)


def all_cases() -> dict[str, Any]:
    return {case.__name__: case() for case in (*REFUSED, *RIGHT)}


@pytest.mark.slow
def test_a_replica_that_would_differ_is_an_error_and_nothing_else_is():
    for found in run_ranks(all_cases, 3):
        for case, (code, said, steps, moved) in REFUSED.items():
            error = found[case.__name__]
            assert error is not None, case.__name__
            assert (error[0], error[2]) == (code, steps) and moved in (error[3], None), error
            assert said in error[1], error
        for case in RIGHT:
            assert found[case.__name__] == STEPS, case.__name__


# ------------------------------------------------------------------------------------------------------------- saves


def saved_after(directory: str, spoil: str) -> Any:
    """The error of a save behind a step in which rank 1 has ``spoil`` changed, and the snapshots that there are."""
    norm = nn.BatchNorm1d(WIDTH) if spoil == "batch statistics" else nn.Identity()
    s = Setup(
        nn.Sequential(OrderedDict(norm=norm, net=Net())),
        snapshots=Snapshots(directory=directory, every="off"),
    )
    error = None
    for i, x in enumerate(s.run.steps(s.feed, epochs=1)):
        plain_step(s.opt, s.model(x).mean())
        if s.rank == 1 and i == 1:
            if spoil == "lr":
                s.opt.param_groups[0]["lr"] = 0.05
            elif spoil == "momentum":
                s.opt.state[s.net.net.head.weight]["momentum_buffer"].add_(1e-6)
            elif spoil == "weight":
                s.net.net.head.weight.data.add_(1e-6)
        if i < 2:
            try:
                s.run.save()
            except RankupError as raised:
                error = raised.code, f"{raised.message} {raised.hint}"
        if i == 2:
            break
    dist.barrier()
    return error, [entry.step for entry in entries(Path(directory))]


@pytest.mark.slow
def test_a_mixture_of_ranks_is_never_saved():
    for spoil, code, name in (
        ("weight", "replicas-differ", "model/net.head.weight"),
        ("momentum", "replicas-differ", "optimizer/state/net.head.weight/momentum_buffer"),
        ("lr", "ranks-differ", "before the schedule's step, by run.meter.means()"),
        ("batch statistics", None, None),
    ):
        with tempfile.TemporaryDirectory() as directory:
            for error, steps in run_ranks(saved_after, 3, directory, spoil):
                if code is None:
                    assert error is None and len(steps) == 2, (spoil, error)
                else:
                    assert error[0] == code and name in error[1] and len(steps) == 1, (spoil, error, steps)


def experts_by_turns(step_of: int) -> tuple[str, int]:
    """Two experts, of which each rank uses its own in one step, without a word to prepare."""
    run = rankup.init(precision="fp64")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(1, 1)
            self.experts = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.first(x)
            if run.global_step == step_of:
                return self.experts[run.world.rank](inner)
            return self.experts[0](inner) + self.experts[1](inner)

    torch.manual_seed(0)
    data = rankup.ResidentData(torch.linspace(-1, 1, 8)[:, None])
    model, opt, feed = run.prepare(Model(), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4)
    try:
        for x in run.steps(feed, epochs=2):
            reached = run.global_step
            opt.zero_grad()
            (model(x) - x).square().mean().backward()
            opt.step()
    except rankup.RankupError as error:
        return error.code, reached
    return "nothing", run.global_step


@pytest.mark.parametrize("step_of", [0, 2, 3])
def test_a_step_that_ddp_has_not_reduced_is_not_taken(step_of: int):
    assert run_ranks(experts_by_turns, 2, step_of) == [("gradients-not-reduced", step_of)] * 2


# ------------------------------------------------------------------------------------------------ steps left out


def left_out(which: str) -> tuple[str, str] | None:
    """``each``: every rank leaves out one step, another one; ``all``: the same one; ``window``: every second one."""
    stop.AGREE_EVERY_S = 1e9  # else ranks meet there, in other exchanges
    run = rankup.init(seed=1, strategy=make_strategy("ddp"))
    rows = torch.linspace(-2, 2, BATCH * 14 * WIDTH).sin().reshape(-1, WIDTH)
    model, opt, feed = run.prepare(Net(), sgd, rankup.ResidentData(rows), global_batch=BATCH)
    try:
        for step, x in enumerate(run.steps(feed, epochs=1)):
            loss = model(x).mean()
            if which == "each" and step == 9 + run.world.rank:
                continue
            if which == "all" and run.sum(float(step == 9 + run.world.rank)):
                continue
            loss.backward()
            if which != "window" or step % 2:
                opt.step()
                opt.zero_grad()
    except RankupError as error:
        return error.code, error.message
    return None


def test_ranks_that_leave_out_a_step_each_are_an_error():
    """As many on each rank: nobody waits, and the weights are the same on all of them."""
    for found in run_ranks(left_out, 3, "each"):
        assert found is not None and found[0] == "skipped-steps"
        assert "rank 0 took no step of an optimizer in step 10" in found[1]


@pytest.mark.parametrize("which", ["all", "window"])
def test_steps_that_all_ranks_leave_out_are_no_error(which: str):
    assert run_ranks(left_out, 3, which) == [None] * 3
