"""Precisions, compilation, memory format and loaders: on a GPU they take the steps of the CPU in double precision."""

from __future__ import annotations

import pytest
import torch
from small import GPU, Net, adam, images, trained
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.runtime.loop.precision import FP16
from rankup.train.metrics import measure
from rankup.workloads.wideresnet_cifar100 import WideresnetCifar100

# Of the losses of six steps, relatively.
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}


@pytest.fixture(scope="module")
def in_doubles() -> list[float]:
    """On the CPU."""
    losses: list[float] = run_ranks(trained, 1, "fp64", "cpu")[0]["losses"]
    return losses


@pytest.mark.parametrize("precision", TOLERANCE)
def test_losses_are_those_of_the_cpu(in_doubles, precision):
    (got,) = run_ranks(trained, 1, precision)
    assert got["losses"] == pytest.approx(in_doubles, rel=TOLERANCE[precision])
    assert got["places"] == {GPU}


def product_error(precision: str) -> tuple[float, float]:
    """Of a matrix product and of a convolution, relative to the largest value."""
    rankup.init(seed=1, precision=precision, device=GPU)
    a, b = torch.randn(512, 512, device=GPU), torch.randn(512, 512, device=GPU)
    x, w = torch.randn(8, 64, 32, 32, device=GPU), torch.randn(64, 64, 3, 3, device=GPU)
    pairs = ((a @ b, a.double() @ b.double()), (F.conv2d(x, w), F.conv2d(x.double(), w.double())))
    product, convolution = (((got - exact).abs().max() / exact.abs().max()).item() for got, exact in pairs)
    return product, convolution


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="this GPU has no TF32"
)
def test_tf32_rounds_products_and_convolutions_and_fp32_does_neither():
    assert max(run_ranks(product_error, 1, "fp32")[0]) < 2e-5
    assert min(run_ranks(product_error, 1, "tf32")[0]) > 2e-5


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_compiled_or_in_another_memory_format_the_losses_are_the_same(in_doubles, precision, channels_last):
    options = {"compile": True, "channels_last": channels_last}
    (got,) = run_ranks(_trained_with, 1, precision, options)
    assert got == pytest.approx(in_doubles, rel=TOLERANCE[precision])


def _trained_with(precision: str, options: dict) -> list[float]:
    losses: list[float] = trained(precision, options=options)["losses"]
    return losses


def from_a_loader() -> list[float]:
    losses: list[float] = trained(resident=False, options={"num_workers": 2})["losses"]
    return losses


def test_a_loader_with_workers_and_pinned_memory_gives_the_same_losses(in_doubles):
    assert run_ranks(from_a_loader, 1)[0] == pytest.approx(in_doubles, rel=TOLERANCE["fp32"])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_micro_batches_and_clipping_take_the_step_of_the_whole_batch(precision):
    whole = run_ranks(clipped, 1, precision, 1)[0]
    cut = run_ranks(clipped, 1, precision, 4)[0]
    assert cut == pytest.approx(whole, rel=TOLERANCE[precision])


def clipped(precision: str, parts: int) -> list[float]:
    """The norm of each step's gradient; without BatchNorm, which sees micro-batches."""
    run = rankup.init(seed=3, precision=precision, device=GPU)
    net = Net()
    net.norm = torch.nn.Identity()  # type: ignore[assignment]
    model, opt, feed = run.prepare(
        net, adam, rankup.ResidentData(*images()), global_batch=16, accumulate=parts, clip=0.1
    )
    norms = []
    for x, y in run.steps(feed, epochs=1):
        run.strategy.forward_backward(model, F.cross_entropy, x, y)
        if step := run.step(opt):
            assert step.grad_norm is not None
            norms.append(step.grad_norm.item())
    return norms


def scale_in_the_state() -> tuple[bool, float]:
    run = rankup.init(seed=1, device=GPU, precision="fp16")
    model, opt, feed = run.prepare(Net(), adam, rankup.ResidentData(*images()), global_batch=20)
    for x, y in run.steps(feed, epochs=1):
        run.strategy.forward_backward(model, F.cross_entropy, x, y)
        run.step(opt)
    return run._context.precision is FP16, run._context.registered["loss_scale"].state_dict()["scale"]


def test_the_loss_scale_of_fp16_is_in_the_state():
    assert run_ranks(scale_in_the_state, 1) == [(True, 2.0**16)]


def waits_for_the_device() -> str:
    """What torch says where a step makes the host wait for the GPU; the first step sets things up, and may."""
    workload = WideresnetCifar100(depth="10", width="1", images="320")
    run = rankup.init(seed=1, device=GPU, precision="bf16")
    train_set, _ = workload.datasets("synthetic")
    model, opt, feed = run.prepare(workload.model(), adam, train_set, global_batch=32, channels_last=True)
    try:
        for x, y in run.steps(feed, epochs=1):
            loss, output = run.strategy.forward_backward(model, workload.loss, x, y)
            run.step(opt)
            measure(run, workload, loss, output, y)
            # The end of an epoch may wait: it asks whether a loss was not finite.
            torch.cuda.set_sync_debug_mode("error" if run.global_step < 9 else "default")
    except RuntimeError as error:
        return str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def test_a_step_on_resident_data_never_waits_for_the_device():
    assert run_ranks(waits_for_the_device, 1) == [""]
