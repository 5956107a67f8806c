"""``rankup train`` under the strategies that need to know the model: trained and evaluated as by one process."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

import rankup
from ranks import run_ranks
from rankup.strategies.base import TORCH
from rankup.train.loop import train
from rankup.train.options import TrainOptions
from rankup.train.parallel import strategy_for
from rankup.train.report import TrainingReport
from rankup.workloads.linear import Linear


class Two(Linear):
    def model(self) -> nn.Module:
        width: int = super().model().in_features  # type: ignore[assignment]
        return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 1))

    def tensor_parallel_plan(self, model: nn.Module) -> dict[str, Any]:
        return {"0": ColwiseParallel(), "2": RowwiseParallel()}

    def pipeline_stages(self, model: nn.Sequential, n: int) -> list[nn.Module]:
        return [model[:2], model[2:]]


def trained(strategy: str) -> dict[str, float]:
    """Losses and accuracies after two epochs."""
    options = TrainOptions(
        "", "linear", data="synthetic", epochs=2, global_batch=16, optimizer="sgd", lr=0.01, strategy=strategy
    )
    workload = Two("100")
    run = rankup.init(seed=3, precision="fp64", strategy=strategy_for(options, workload))
    report = TrainingReport(run, options, workload)
    train(run, workload, options, report)
    ended = report.ends()
    return {
        name: value
        for name, value in ended.items()
        if ("loss" in name or "accuracy" in name) and isinstance(value, float)
    }


@pytest.mark.repeated
@pytest.mark.parametrize("strategy", ["fsdp", "tp", "pp"])
def test_two_processes_report_what_one_reports(strategy: str):
    if strategy != "tp" and TORCH < (2, 8):
        pytest.skip(f"{strategy} on CPUs needs torch 2.8")
    (expected,) = run_ranks(trained, 1, "auto")
    assert expected
    for found in run_ranks(trained, 2, strategy):
        assert found == pytest.approx(expected, rel=1e-9)
