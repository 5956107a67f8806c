"""The same model whatever the number of processes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.workloads.data import load_images
from rankup.workloads.mnist_cnn import MnistNet, normalised


def digits(count: int) -> rankup.ResidentData:
    pixels, labels = load_images("digits", train=True)
    return rankup.ResidentData(pixels[:count], labels[:count], transform=normalised)


def train_digits(count: int, precision: str, epochs: int) -> dict:
    """Two epochs of mnist-cnn without dropout in steps of 60; the weights, and which samples each step saw."""
    run = rankup.init(seed=5, precision=precision)
    data = digits(count)
    numbered = rankup.ResidentData(
        *data.columns, torch.arange(count), transform=lambda c, r: (*normalised(c[:2], r), c[2])
    )
    network = MnistNet(dropout=False)
    model, opt, feed = run.prepare(
        network, lambda p: torch.optim.Adam(p, lr=1e-3, fused=True), numbered, global_batch=60
    )
    seen, gradients, counts = [], None, []
    for x, y, number in run.steps(feed, epochs=epochs):
        opt.zero_grad()
        F.nll_loss(model(x), y).backward()
        if gradients is None:
            gradients = [p.grad.clone() for p in network.parameters()]
        opt.step()
        counts.append(run.batch.samples)
        seen.append(number.tolist() if run.batch.samples else [])
    return {"weights": network.state_dict(), "seen": seen, "gradients": gradients, "counts": counts}


def largest_difference(a: dict, b: dict) -> float:
    return max((a[name] - b[name]).abs().max().item() for name in a)


@pytest.fixture(scope="module")
def one_process() -> dict:
    return run_ranks(train_digits, 1, 62, "fp64", 2)[0]


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [*(pytest.param(n, marks=pytest.mark.campaign) for n in (2, 3)), 4])
def test_weights_in_fp64_agree_to_1e_9_where_nothing_divides_and_ranks_run_empty(one_process, world_size):
    # 62 = 60 + 2: the last batch leaves ranks 2 and 3 with nothing.
    ranks = run_ranks(train_digits, world_size, 62, "fp64", 2)
    assert ranks[0]["counts"][1] == 2 // min(world_size, 2)
    assert [r["counts"][1] for r in ranks[2:]] == [0] * (world_size - 2)
    for rank in ranks:
        assert largest_difference(rank["weights"], one_process["weights"]) < 1e-9


@pytest.mark.campaign
def test_weights_agree_on_hundreds_of_digits():
    alone, (first, _, _) = (
        run_ranks(train_digits, 1, 717, "fp64", 1)[0],
        run_ranks(train_digits, 3, 717, "fp64", 1),
    )
    assert largest_difference(alone["weights"], first["weights"]) < 1e-9


def test_in_fp32_the_first_gradient_agrees_and_the_order_is_equal():
    alone = run_ranks(train_digits, 1, 62, "fp32", 1)[0]
    ranks = run_ranks(train_digits, 4, 62, "fp32", 1)
    ours, theirs = (torch.cat([g.flatten() for g in r["gradients"]]) for r in (ranks[0], alone))
    assert (ours - theirs).norm() <= 1e-6 * theirs.norm()
    together = [sum((r["seen"][step] for r in ranks), []) for step in range(2)]
    assert together == alone["seen"]


class Poisoned(nn.Module):
    """Gives NaN for the sample that stands in on a rank without one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.linear.weight)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x)


def step_with_nan_on_the_empty_rank() -> tuple[float, float]:
    run = rankup.init()
    net = Poisoned()
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=1.0), rankup.ResidentData(torch.ones(3, 1)), global_batch=2
    )
    for x in run.steps(feed, epochs=1):
        opt.zero_grad()
        loss = model(x).sum() * (float("nan") if run.batch.samples == 0 else 1.0)
        loss.backward()
        opt.step()
    return net.linear.weight.item(), net.calls.item()


def weighed_at_the_loss() -> tuple[dict[str, torch.Tensor], list[float]]:
    """Two models, as where one has SyncBatchNorm: rank 1 has no sample in the last step."""
    run = rankup.init(seed=2, precision="fp64")
    x = torch.linspace(-1, 1, 9)[:, None]
    first, opt, feed = run.prepare(
        nn.Linear(1, 2), lambda p: torch.optim.SGD(p, lr=0.3), rankup.ResidentData(x), global_batch=8
    )
    run._context.gradients.weigh_losses = True
    second, other, _ = run.prepare(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.3))
    counts = []
    for batch in run.steps(feed, epochs=2):
        loss = (second(first(batch)) - 1).square().mean()
        run.backward(loss)
        run.step(opt)
        run.step(other)
        counts.append(run.batch.samples)
    weights = [
        {f"{i}.{n}": p.detach() for n, p in m.named_parameters()} for i, m in enumerate(run._context.models)
    ]
    return weights[0] | weights[1], counts


def test_weighed_at_the_loss_gradients_are_the_same():
    one, two = run_ranks(weighed_at_the_loss, 2)
    assert 0 in two[1]
    (alone,) = run_ranks(weighed_at_the_loss, 1)
    for name, tensor in alone[0].items():
        assert torch.equal(one[0][name], two[0][name])
        assert torch.allclose(one[0][name], tensor, atol=1e-12)


def test_an_empty_rank_contributes_neither_gradients_nor_buffers_even_if_they_are_nan():
    one, two = run_ranks(step_with_nan_on_the_empty_rank, 2)
    assert one == two
    assert one[0] == pytest.approx(1 - 1.0 - 1.0)


def losses_of(kind: str) -> list[float]:
    """Five steps over 10 samples in steps of 4, with the optimizer given in one of three ways."""
    run = rankup.init(seed=1, precision="fp64")
    net = nn.Linear(3, 1)
    x = torch.arange(30.0).reshape(10, 3) / 30
    data = rankup.ResidentData(x, x.sum(1, keepdim=True))
    if kind == "function":
        source = lambda p: torch.optim.SGD(p, lr=0.1)  # noqa: E731
    elif kind == "built":
        source = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.05}], lr=0.1)
    else:
        source = torch.optim.Adam(net.parameters(), lr=0.1)
    model, opt, feed = run.prepare(net, source, data, global_batch=4)
    losses = []
    for a, b in run.steps(feed, epochs=2):
        loss = F.mse_loss(model(a), b)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(run.mean(loss.item()))
    return losses


@pytest.mark.repeated
@pytest.mark.parametrize("kind", ["function", "built", "built-adam"])
def test_the_optimizer_may_be_a_function_or_built_without_state(kind):
    alone = run_ranks(losses_of, 1, kind)[0]
    for losses in run_ranks(losses_of, 2, kind):
        assert losses == pytest.approx(alone, abs=1e-12)
    assert alone[-1] < alone[0] / 2


def refused_optimizers() -> list[str]:
    run = rankup.init()
    messages = []
    net = nn.Linear(2, 1)
    stepped = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    stepped.step()
    head = nn.Linear(1, 1)  # of the loss, and in nobody's DDP
    for source in (
        stepped,
        torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=1.0),
        lambda p: torch.optim.SGD([*p, *head.parameters()], lr=1.0),
        lambda p: None,
    ):
        try:
            run.prepare(net, source)
        except rankup.RankupError as error:
            messages.append(error.code)
    return messages


def test_an_optimizer_that_would_train_nothing_is_refused():
    assert run_ranks(refused_optimizers, 1)[0] == [
        "optimizer-has-state",
        "foreign-parameter",
        "foreign-parameter",
        "not-an-optimizer",
    ]


class Around:
    """A schedule that holds its optimizer and is not an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_an_object_around_an_optimizer_is_refused_with_what_to_prepare():
    run = rankup.init()
    net = nn.Linear(1, 1)
    for source in (Around(torch.optim.SGD(net.parameters())), lambda p: Around(torch.optim.SGD(p))):
        with pytest.raises(
            rankup.RankupError, match=r"Around, which is not a torch\.optim\.Optimizer"
        ) as error:
            run.prepare(net, source)
        assert "make the Around of what prepare returns" in str(error.value.hint)


def accumulated(parts: int, clip: float | None) -> dict:
    run = rankup.init(seed=1, precision="fp64")
    torch.manual_seed(0)
    x = torch.randn(23, 5)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    model, opt, feed = run.prepare(
        net,
        lambda p: torch.optim.SGD(p, lr=0.3),
        rankup.ResidentData(x, x[:, :1] * 3),
        global_batch=7,
        accumulate=parts,
        clip=clip,
    )
    steps = 0
    for a, b in run.steps(feed, epochs=2):
        run.backward(F.mse_loss(model(a), b))
        steps += bool(run.step(opt))
    return {"weights": net.state_dict(), "steps": steps}


@pytest.mark.parametrize(
    ("world_size", "parts", "clip"),
    [
        (2, 2, None),
        (2, 4, 0.2),
        *(pytest.param(1, n, clip, marks=pytest.mark.campaign) for n, clip in ((3, None), (1, 0.2))),
    ],
)
def test_accumulation_and_clipping_take_the_same_steps(world_size, parts, clip):
    # 23 = 3 × 7 + 2: the tail of the epoch leaves micro-batches, and on two ranks whole windows, nearly empty.
    def alone_without() -> dict:
        return run_ranks(accumulated, 1, 1, clip)[0]

    reference = alone_without() if clip is None else clipped_reference(clip)
    for result in run_ranks(accumulated, world_size, parts, clip):
        assert result["steps"] == 8
        assert largest_difference(result["weights"], reference["weights"]) < 1e-12


def clipped_reference(clip: float) -> dict:
    return run_ranks(_clipped_by_hand, 1, clip)[0]


def _clipped_by_hand(clip: float) -> dict:
    run = rankup.init(seed=1, precision="fp64")
    torch.manual_seed(0)
    x = torch.randn(23, 5)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.3), rankup.ResidentData(x, x[:, :1] * 3), global_batch=7
    )
    clipped = 0
    for a, b in run.steps(feed, epochs=2):
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        clipped += nn.utils.clip_grad_norm_(net.parameters(), clip) > clip
        opt.step()
    assert clipped > 0  # else this shows nothing
    return {"weights": net.state_dict()}


def misused_accumulation(how: str) -> str:
    run = rankup.init()
    model, opt, feed = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(4, 1)),
        global_batch=2,
        accumulate=2,
    )
    try:
        for x in run.steps(feed, epochs=1):
            if how == "gradients-cleared":
                opt.zero_grad()  # as plain loops begin
                run.backward(model(x).sum())
                run.step(opt)
            else:
                model(x).sum().backward()
                opt.step()
    except rankup.RankupError as error:
        return error.code
    return "nothing"


@pytest.mark.parametrize("how", ["plain-backward", "gradients-cleared"])
def test_a_loop_that_forgets_about_micro_batches_is_an_error(how):
    assert run_ranks(misused_accumulation, 1, how) == [how]


def train_bf16() -> tuple[torch.dtype, torch.dtype, float, float]:
    run = rankup.init(seed=1, precision="bf16")
    net = nn.Linear(8, 8)
    inner = []
    net.register_forward_hook(lambda m, i, o: inner.append(torch.is_autocast_enabled("cpu")))
    x = torch.randn(16, 8)
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(x, x), global_batch=8
    )
    losses = []
    for a, b in run.steps(feed, epochs=10):
        output = model(a)
        loss = F.mse_loss(output, b)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(run.mean(loss.item()))
    return output.dtype, net.weight.dtype, losses[0], losses[-1]


def bf16_of_a_copy_and_of_a_forward_that_raises() -> tuple[bool, bool]:
    run = rankup.init(precision="bf16")
    model, *_ = run.prepare(nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.weight.zero_()
        copied.bias.zero_()
    own_forward = bool((copied(torch.ones(1, 2)) == 0).all())
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 5))
    return own_forward, torch.is_autocast_enabled("cpu")


def test_a_copy_of_a_bf16_model_is_its_own_and_an_error_in_forward_leaves_autocast():
    assert run_ranks(bf16_of_a_copy_and_of_a_forward_that_raises, 1) == [(True, False)]


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.campaign), 2])
def test_bf16_computes_in_autocast_and_keeps_weights_and_outputs_in_fp32(world_size):
    for output, weight, first, last in run_ranks(train_bf16, world_size):
        assert output == weight == torch.float32
        assert last < first


class Normed(nn.Module):
    """Has a buffer that is random per process, unless somebody makes it one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("features", torch.randn(3))
        self.linear = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.features)


def built_after_another_was_prepared() -> tuple[list[float], list[float], bool]:
    run = rankup.init()
    run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))  # from here on each rank draws its own
    student, teacher = Normed(), Normed()
    teacher.requires_grad_(False)
    run.prepare(student, lambda p: torch.optim.SGD(p, lr=0.1))
    _, nothing, _ = run.prepare(teacher, None)
    return student.features.tolist(), teacher.linear.weight.flatten().tolist(), nothing is None


def test_models_built_late_and_frozen_ones_start_equal_on_all_ranks():
    one, two = run_ranks(built_after_another_was_prepared, 2)
    assert one == two
    assert one[2]


def two_backwards_per_step(parts: int) -> dict:
    run = rankup.init(seed=1, precision="fp64")
    net = nn.Linear(2, 1)
    x = torch.arange(22.0).reshape(11, 2) / 22
    model, opt, feed = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(x), global_batch=4, accumulate=parts
    )
    for a in run.steps(feed, epochs=2):
        for factor in (1, 2):
            run.backward(factor * model(a).square().mean())
        run.step(opt)
    return net.state_dict()


@pytest.mark.parametrize(
    ("world_size", "parts"),
    [(3, 2), *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((2, 1), (1, 3)))],
)
def test_two_losses_per_step_add_up(world_size, parts):
    alone = run_ranks(two_backwards_per_step, 1, 1)[0]
    for weights in run_ranks(two_backwards_per_step, world_size, parts):
        assert largest_difference(weights, alone) < 1e-12


def accumulates_with_infinite_dummy_batches() -> float:
    run = rankup.init(precision="fp64")
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    model, opt, feed = run.prepare(
        net,
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(3, 1)),
        global_batch=4,
        accumulate=4,
    )
    for x in run.steps(feed, epochs=1):
        run.backward(model(x).mean() * (1.0 if run.batch.samples else float("inf")))
        run.step(opt)
    return net.weight.item()


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.campaign), 2])
def test_a_dummy_batch_among_micro_batches_counts_nothing_even_if_it_is_infinite(world_size):
    assert run_ranks(accumulates_with_infinite_dummy_batches, world_size) == [pytest.approx(0.9)] * world_size


def gan(parts: int) -> tuple[float, float]:
    run = rankup.init(precision="fp64")
    first, second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    for net in (first, second):
        nn.init.ones_(net.weight)
    a, opt_a, feed = run.prepare(
        first,
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(5, 1)),
        global_batch=4,
        accumulate=parts,
    )
    b, opt_b, _ = run.prepare(second, lambda p: torch.optim.SGD(p, lr=0.1))
    for x in run.steps(feed, epochs=1):
        run.backward(a(x).mean())
        run.step(opt_a)
        run.backward(b(x).mean())
        run.step(opt_b)
    return first.weight.item(), second.weight.item()


@pytest.mark.parametrize(
    ("world_size", "parts"),
    [(2, 2), *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((1, 2), (2, 1)))],
)
def test_two_models_in_one_loop_take_the_same_steps_however_they_are_cut(world_size, parts):
    assert run_ranks(gan, world_size, parts) == [(pytest.approx(0.8), pytest.approx(0.8))] * world_size


def steps_by_hand_though_clipped() -> str:
    run = rankup.init()
    model, opt, feed = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(4, 1)),
        global_batch=2,
        clip=0.1,
    )
    try:
        for x in run.steps(feed, epochs=1):
            run.backward(model(x).sum())
            opt.step()
    except rankup.RankupError as error:
        return error.code
    return "nothing"


def test_a_plain_step_where_clipping_needs_ours_is_an_error():
    assert run_ranks(steps_by_hand_though_clipped, 1) == ["plain-backward"]


def rates_of_dropout() -> list[float]:
    run = rankup.init()
    run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    return torch.rand(3).tolist()


def test_after_prepare_each_rank_draws_numbers_of_its_own():
    one, two = run_ranks(rates_of_dropout, 2)
    assert one != two
