"""Every strategy takes the steps that one process takes: gradients, weights and losses, on two ranks and on four."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from toy import adam, data, largest_difference, prepared, sgd, strategy, trained

import rankup
from ranks import run_ranks
from rankup.runtime.loop.loss_scaling import LossScaler
from rankup.strategies.clipping import local
from rankup.strategies.state import whole_weights
from rankup.train.options import TrainOptions
from rankup.train.parallel import strategy_for
from rankup.workloads.data import load_images
from rankup.workloads.mnist_cnn import MnistCnn, normalised

STRATEGIES = ("ddp", "fsdp", "tp", "pp")
# Of fp32 and bf16: an optimizer amplifies rounding, so weights are compared after three steps and no more.
TOLERANCE = {"fp64": 1e-12, "fp32": 2e-6, "bf16": 2e-2}

# What is done besides the plain loop; every entry is trained by every strategy and by one process. The last ones, of
# which the others have the parts, are the campaign's.
CASES: dict[str, dict[str, Any]] = {
    "fp64": {},  # 22 = 8 + 8 + 6 samples: on four ranks the last step has shares of 2, 2, 1 and 1
    "bf16": {"precision": "bf16"},
    "an empty rank": {"samples": 17},
    "accumulation": {
        "options": {"accumulate": 3}
    },  # eight samples on four ranks: some micro-batches are empty
    "accumulation, its tail and clipping": {"samples": 17, "options": {"accumulate": 2, "clip": 0.5}},
    "fp32": {"precision": "fp32"},
    "adam": {"optimizer": adam},
    "clipping": {"options": {"clip": 0.5}},
}
IN_SHORT = [*CASES][:5]


def by_hand(precision: str = "fp64", samples: int = 22, optimizer: Any = None, options: Any = None) -> dict:
    """One process and torch alone, but for the order of samples."""
    run = rankup.init(seed=2, precision=precision)
    model, opt, feed = prepared(run, samples, *([optimizer] if optimizer else []))
    first: dict[str, torch.Tensor] = {}
    losses, norms = [], []
    clip = (options or {}).get("clip")
    for x, y in run.steps(feed, epochs=1):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        first = first or {name: p.grad.clone() for name, p in model.named_parameters()}
        if clip:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return {
        "gradients": first,
        "weights": model.state_dict(),
        "losses": losses,
        "counted": samples,
        "norms": norms,
    }


def all_by_hand() -> dict[str, dict]:
    return {case: by_hand(**what) for case, what in CASES.items()}


def cases_of(name: str, cases: list[str]) -> dict[str, dict]:
    return {case: trained(name, **CASES[case]) for case in cases}


@pytest.fixture(scope="module")
def one_process() -> dict[str, dict]:
    return run_ranks(all_by_hand, 1)[0]


# On two ranks less can go wrong than on four: no share is uneven, and no rank is empty.
@pytest.mark.repeated
@pytest.mark.parametrize(
    ("size", "cases"),
    [
        pytest.param(4, IN_SHORT, id="4"),
        pytest.param(4, [*CASES][5:], id="4, the others", marks=pytest.mark.campaign),
        pytest.param(2, [*CASES], id="2", marks=pytest.mark.campaign),
    ],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_steps_are_those_of_one_process(one_process, name, size, cases):
    on_ranks = run_ranks(cases_of, size, name, cases)
    for case in cases:
        same_steps(case, on_ranks, one_process[case])


def same_steps(case: str, on_ranks: list[dict[str, dict]], wanted: dict) -> None:
    tolerance = TOLERANCE[CASES[case].get("precision", "fp64")]
    if "accumulate" not in CASES[case].get("options", {}):
        for rank in on_ranks:
            if "clip" not in CASES[case].get("options", {}):
                assert largest_difference(rank[case]["gradients"], wanted["gradients"]) < tolerance, case
            assert rank[case]["losses"] == pytest.approx(wanted["losses"], abs=tolerance), case
    assert largest_difference(on_ranks[0][case]["weights"], wanted["weights"]) < tolerance, case
    for rank in on_ranks:
        assert rank[case]["counted"] == wanted["counted"], case
        assert rank[case]["norms"] == pytest.approx(wanted["norms"], abs=tolerance), case
    if wanted["norms"]:
        assert max(wanted["norms"]) > 0.5  # else nothing was clipped


def variants() -> dict[str, dict]:
    return {
        "static graph": trained("ddp", static_graph=True),
        "hybrid": trained("fsdp", shard_size=2, samples=17),
        "few micro-batches": trained("pp", microbatches=1),  # fewer than stages: 1F1B cannot, GPipe can
        "pp of 5 samples": trained("pp", samples=13),  # 8 + 5: one size after another
    }


@pytest.mark.slow
def test_variants_of_strategies_take_the_same_steps(one_process):
    wanted = {"hybrid": one_process["an empty rank"]}
    wanted["pp of 5 samples"] = run_ranks(by_hand, 1, "fp64", 13)[0]
    got = run_ranks(variants, 4)[0]
    for name, result in got.items():
        reference = wanted.get(name, one_process["fp64"])
        assert largest_difference(result["weights"], reference["weights"]) < 1e-12, name


def nan_on_the_empty_rank(name: str) -> tuple[dict[str, torch.Tensor], float]:
    run = rankup.init(seed=2, precision="fp64", strategy=strategy(name))
    model, opt, feed = prepared(run, 9)
    for x, y in run.steps(feed, epochs=1):
        loss = F.mse_loss(model(x), y) * (1.0 if run.batch.samples else float("nan"))
        run.backward(loss)
        run.step(opt)
        mean = run.mean(loss.item())
    return whole_weights(run._context.strategy, run._context.models[0]), mean


@pytest.mark.repeated
@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_nothing_of_an_empty_rank_counts_even_if_it_is_nan(name):
    alone = run_ranks(by_hand, 1, "fp64", 9)[0]
    for weights, loss in run_ranks(nan_on_the_empty_rank, 2, name):
        assert largest_difference(weights, alone["weights"]) < 1e-12
        assert loss == pytest.approx(alone["losses"][-1])


def batch_statistics(name: str) -> tuple[list[dict], list[int]]:
    """Running means after two epochs, of each rank; and the samples that an evaluation saw."""
    run = rankup.init(seed=2, precision="fp64", strategy=strategy(name))
    model, opt, feed = prepared(run, 22, norm=True)
    model.train()
    for x, y in run.steps(feed, epochs=2):
        run.strategy.forward_backward(model, F.mse_loss, x, y)
        run.step(opt)
    model.eval()
    seen = []
    for x, _ in run.batches(
        data(17), global_batch=8
    ):  # 8 + 8 + 1: the last would leave ranks without a batch
        model(x)
        seen += (x[:, 0] * 1e6).round().long().tolist() if run.batch.samples else []
    held = run._context.strategy.tensors(run._context.models[0])
    return {key: value.clone() for key, value in held.items() if "running" in key or "tracked" in key}, seen


@pytest.mark.repeated
@pytest.mark.parametrize("name", ["ddp", "fsdp", "tp", "pp"])
def test_batch_statistics_are_one_and_an_evaluation_sees_each_sample_once(name):
    ranks = run_ranks(batch_statistics, 2, name)
    everything = sorted((data(17).columns[0][:, 0].double() * 1e6).round().long().tolist())
    assert sorted(ranks[0][1] + ranks[1][1]) == everything
    if name == "pp":  # one stage holds them, and micro-batches have statistics of their own
        (batches,) = (held["blocks.1.1.num_batches_tracked"] for held, _ in ranks if held)
        assert batches == 2 * (
            4 + 4 + 3
        )  # micro-batches of 8, 8 and 6 samples: nothing but training was seen
        return
    (one, _), (two, _) = ranks
    assert largest_difference(one, two) == 0.0
    if name == "tp":  # all ranks see whole batches: the statistics of one process
        assert largest_difference(one, run_ranks(batch_statistics, 1, "ddp")[0][0]) < 1e-8  # of about 100


def drawn_after_prepare(name: str) -> list[float]:
    run = rankup.init(seed=2, strategy=strategy(name))
    prepared(run, 8)
    return torch.rand(3).tolist()


@pytest.mark.parametrize(("name", "alike"), [("tp", True), ("pp", False), ("fsdp", False)])
def test_ranks_draw_alike_only_where_they_compute_one_activation(name, alike):
    one, two = run_ranks(drawn_after_prepare, 2, name)
    assert (one == two) == alike


def whole_norm_overflow(name: str) -> tuple[bool, bool]:
    """A gradient that is infinite in the piece of rank 1 alone."""
    run = rankup.init(seed=2, strategy=strategy(name))
    prepared(run, 8)
    parameters = list(run._context.models[0].parameters())
    said = []
    for value in (1.0, float("inf") if run.world.rank == 1 else 1.0):
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
            local(parameter.grad).fill_(value)
        said.append(LossScaler().finite(parameters, run._context.strategy, run.device))
    return said[0], said[1]


@pytest.mark.parametrize("name", ["fsdp", "tp", "pp"])
def test_an_overflow_in_the_piece_of_one_rank_is_everybodys(name):
    assert run_ranks(whole_norm_overflow, 2, name) == [(True, False)] * 2


def mnist_cnn(name: str, precision: str = "fp64") -> dict[str, torch.Tensor]:
    """A step of the built-in network, whose weights lie in channels-last order."""
    workload = MnistCnn(dropout="off")
    options = asked(strategy=name)
    run = rankup.init(seed=2, precision=precision, strategy=strategy_for(options, workload))
    pixels, labels = load_images("digits", train=True)
    model, opt, feed = run.prepare(
        workload.model(),
        sgd,
        rankup.ResidentData(pixels[:6], labels[:6], transform=normalised),
        global_batch=6,
    )
    for x, y in run.steps(feed, epochs=1):
        run.strategy.forward_backward(model, workload.loss, x, y)
        run.step(opt)
    return whole_weights(run._context.strategy, run._context.models[0])


def asked(**options: Any) -> TrainOptions:
    return TrainOptions("rankup.workloads.mnist_cnn:MnistCnn", "mnist-cnn", **options)


@pytest.mark.repeated
@pytest.mark.parametrize(
    "name", ["fsdp", "tp", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("ddp", "pp"))]
)
def test_mnist_cnn_in_channels_last_order_takes_the_same_step(name):
    alone = run_ranks(mnist_cnn, 1, "auto")[0]
    assert largest_difference(run_ranks(mnist_cnn, 2, name)[0], alone) < 1e-12
