"""fsdp gathers each block when it runs: ranks that run others end with an error, before they compute with garbage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from toy import largest_difference

import rankup
from ranks import run_ranks
from rankup.strategies import block_order
from rankup.strategies.state import whole_weights

STEPS = 4


class Chosen(nn.Module):
    """Blocks of equal sizes (their gathers would pair up in silence), run in the order that the caller gives."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, order: Any = (0, 1, 2), recompute: bool | None = None) -> torch.Tensor:
        for index in order:
            block = self.blocks[index]
            x = block(x) if recompute is None else checkpoint(block, x, use_reentrant=recompute)
        return self.head(self.norm(x))


class Heads(nn.Module):
    """All heads run; the loss takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        h = self.body(x).tanh()
        return [head(h) for head in self.heads]


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def forward(self, x: torch.Tensor, which: str) -> torch.Tensor:
        return x + self.parts[which](x)


class Inside(nn.Module):
    """Blocks that every rank runs, and in each a part that it may pass over; and containers that are not blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Either() for _ in range(2))
        self.heads = nn.ModuleList([nn.ModuleDict({"c": nn.Linear(4, 2)}), nn.ParameterList([torch.ones(2)])])

    def forward(self, x: torch.Tensor, which: str) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, which)
        return self.heads[0]["c"](x) * self.heads[1][0]


class Output:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Hidden(nn.Module):
    """What its forward returns holds a tensor where nobody finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return Output(self.head(x))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def batch(step: int, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 6 * 4, dtype=torch.float64).reshape(6, 4).add(step).mul(9).sin()
    return x[rank::ranks], x[rank::ranks, :2].square()


def model_of(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    return kind().double()


def train(
    kind: type[nn.Module], loss: Callable[..., torch.Tensor], run: rankup.Run | None
) -> dict[str, torch.Tensor]:
    """Four steps of SGD; ``loss(model, x, y, step, rank)``. Without a run: plain torch on whole batches."""
    model = model_of(kind)
    if run is None:
        opt = sgd(model.parameters())
        rank, ranks = 0, 1
    else:
        model, opt, _ = run.prepare(model, sgd)
        rank, ranks = run.world.rank, run.world.world_size
    for step in range(STEPS):
        loss(model, *batch(step, rank, ranks), step, rank).backward()
        opt.step()
        opt.zero_grad()
    return model.state_dict() if run is None else whole_weights(run._context.strategy, run._context.models[0])


# -------------------------------------------- alike on all ranks: no error, and the plain loop's weights


def dropped_alike(model, x, y, step, rank):
    return F.mse_loss(model(x, [i for i in range(3) if (step + i) % 3]), y)


def two_forwards(model, x, y, step, rank):
    return F.mse_loss(model(x, (0, 1)) + model(x, (2,)), y)


def again_and_again(model, x, y, step, rank):
    return F.mse_loss(model(x, (0, 0, 1) + (2,) * (step + 1)), y)


def with_evaluations(model, x, y, step, rank):
    with torch.no_grad():
        model(x, (1,) if step % 2 else (2, 1))
    return F.mse_loss(model(x), y)


def recomputed(model, x, y, step, rank):
    return F.mse_loss(model(x, recompute=False), y)


def recomputed_reentrant(model, x, y, step, rank):
    return F.mse_loss(model(x.clone().requires_grad_(), recompute=True), y)


def penalised(model, x, y, step, rank):
    x = x.clone().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.mse_loss(out, y) + slope.square().sum(1).mean()


def one_head_alike(model, x, y, step, rank):
    return F.mse_loss(model(x)[step % 3], y)


def part_alike(model, x, y, step, rank):
    return F.mse_loss(model(x, "ab"[step % 2]), y)


ALIKE = [
    (Inside, part_alike),
    (Chosen, dropped_alike),
    (Chosen, two_forwards),
    (Chosen, again_and_again),
    (Chosen, with_evaluations),
    (Chosen, recomputed),
    (Chosen, recomputed_reentrant),
    (Heads, one_head_alike),
]


def all_plain() -> list[dict[str, torch.Tensor]]:
    return [train(kind, loss, None) for kind, loss in ALIKE]


def all_alike() -> tuple[list[dict[str, torch.Tensor]], list[int]]:
    weights, asked, ask = [], Counter(), block_order.BlockOrder._ask

    def counted(order, event):
        asked[order] += 1
        ask(order, event)

    block_order.BlockOrder._ask = counted
    forwards = []
    for kind, loss in ALIKE:
        run = rankup.init(precision="fp64", strategy="fsdp")
        weights.append(train(kind, loss, run))
        forwards.append(run._context.strategy._units._forward)
    return weights, [asked[forward] for forward in forwards]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.campaign), 3])
def test_blocks_that_vary_alike_on_all_ranks_are_trained_as_by_the_plain_loop(ranks):
    wanted = run_ranks(all_plain, 1)[0]
    weights, asked = run_ranks(all_alike, ranks)[0]
    for (_, loss), found, one in zip(ALIKE, weights, wanted, strict=True):
        assert largest_difference(found, one) < 1e-12, loss.__name__
    # What never varies is compared once: the root, three blocks and the end, in the first step alone.
    assert asked[[loss for _, loss in ALIKE].index(recomputed)] == 5


# ------------------------------------------------------------ not alike: an error on every rank


def by_rank(model, x, y, step, rank):
    return F.mse_loss(model(x, (rank % 2, 2)), y)


def fewer_on_one(model, x, y, step, rank):
    return F.mse_loss(model(x, (0, 1, 2) if rank else (0, 1)), y)


def one_head_by_rank(model, x, y, step, rank):
    return F.mse_loss(model(x)[rank % 3], y)


def part_of_a_block(model, x, y, step, rank):
    return F.mse_loss(model(x, "a" if rank else "b"), y)


def block_by_itself(model, x, y, step, rank):
    return F.mse_loss(model.blocks[0](x)[:, :2], y)


def head_by_itself(model, x, y, step, rank):
    return F.mse_loss(model.head(model(x).repeat(1, 2)), y)


def hidden_output(model, x, y, step, rank):
    return F.mse_loss(model(x).value, y)


REFUSED = [
    (Chosen, by_rank, "fsdp-uneven-blocks", "rank 1: the forward of blocks.1"),
    (Chosen, fewer_on_one, "fsdp-uneven-blocks", "rank 0: the end of the forward of the model"),
    (Heads, one_head_by_rank, "fsdp-uneven-blocks", "rank 1: the backward of heads.1"),
    (
        Inside,
        part_of_a_block,
        "fsdp-uneven-blocks",
        "the reduction of layers.1 without a gradient of layers.1.parts.b.weight",
    ),
    (Chosen, block_by_itself, "fsdp-outside-forward", "blocks.0"),
    (Chosen, head_by_itself, "fsdp-outside-forward", "head"),
    (Hidden, hidden_output, "fsdp-not-reduced", "head.weight"),
]


def all_refused() -> list[tuple[str, str, str]]:
    said = []
    for kind, loss, _, _ in REFUSED:
        run = rankup.init(precision="fp64", strategy="fsdp")
        try:
            train(kind, loss, run)
        except rankup.RankupError as error:
            said.append((error.code, f"{error.message} {error.context}", error.hint))
        else:
            said.append(("none", "", ""))
    return said


@pytest.mark.slow
def test_what_ranks_do_not_do_alike_is_an_error_on_all_of_them():
    for said in run_ranks(all_refused, 3):
        for (_, _, code, names), (got, message, hint) in zip(REFUSED, said, strict=True):
            assert got == code, message
            assert names in message
            assert code != "fsdp-uneven-blocks" or "find_unused_parameters=True" in hint


def leaves_the_known_way() -> str:
    """Rank 1 runs another block in the third step, when nothing is communicated any more. What its error says."""
    block_order.PATIENCE_S = 1.0

    def loss(model, x, y, step, rank):
        return F.mse_loss(model(x, (0, 2, 1) if step == 2 and rank == 1 else (0, 1, 2)), y)

    # The other ranks may lose their connection to rank 1 before they notice by themselves.
    try:
        train(Chosen, loss, rankup.init(precision="fp64", strategy="fsdp"))
    except (rankup.RankupError, RuntimeError) as error:
        return str(error)
    return ""


def test_a_rank_that_leaves_the_known_way_ends_with_an_error():
    said = run_ranks(leaves_the_known_way, 3)
    assert "rank 1: the forward of blocks.2, where steps before had: the forward of b" in said[1]
    assert all(said)


# ------------------------------------------------------------ weights that change between forwards


def changed_after_an_evaluation() -> list[float]:
    run = rankup.init(precision="fp64", strategy="fsdp")
    model, opt, _ = run.prepare(model_of(Chosen), sgd)
    x, y = batch(0, run.world.rank, run.world.world_size)
    found = []
    with torch.no_grad():
        model(x)
        for parameter in model.parameters():
            parameter.zero_()  # as an average of the weights would be put in
        found.append(model(x).abs().max().item())
        for parameter in model.parameters():
            parameter.add_(0.1)
    F.mse_loss(model(x), y).backward()
    model(x)  # gathered again, and not let go
    before = whole_weights(run._context.strategy, run._context.models[0])["head.bias"]
    opt.step()
    after = whole_weights(run._context.strategy, run._context.models[0])["head.bias"]
    with torch.no_grad():
        seen = model(x)
        copy = model_of(Chosen)
        copy.load_state_dict(
            whole_weights(run._context.strategy, run._context.models[0])
            if run.world.world_size == 1
            else {name: value.full_tensor() for name, value in model.state_dict().items()}
        )
        found.append((seen - copy(x)).abs().max().item())
    return [*found, (before - after).abs().max().item()]


def test_a_forward_computes_with_the_weights_of_now():
    for zero, difference, step in run_ranks(changed_after_an_evaluation, 2):
        assert zero == 0.0
        assert difference < 1e-12
        assert step > 0.0
