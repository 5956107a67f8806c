"""The loop. Everything that makes it run on many processes is in the library's calls; there is no private path."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from rankup.runtime.run import Run
from rankup.train.metrics import Meter, Result
from rankup.train.optimizers import optimizer_for
from rankup.train.options import TrainOptions
from rankup.train.report import Report
from rankup.train.workload import Data, Workload


def train(run: Run, workload: Workload, options: TrainOptions, report: Report) -> nn.Module:
    """Train and evaluate ``options.epochs`` times; the trained model, unwrapped."""
    if run.sum(int(not workload.present(options.data))):  # all ranks enter, or none
        with run.shared_first(workload.home(options.data)):
            workload.obtain(options.data)
    train_set, test_set = workload.datasets(options.data)
    network = workload.model()
    model, optimizer, data = run.prepare(
        network, optimizer_for(options), train_set, global_batch=options.global_batch
    )
    schedule = StepLR(optimizer, step_size=1, gamma=options.gamma)
    run.keep(schedule=schedule)

    for epoch in run.epochs(options.epochs, data):
        model.train()
        meter = Meter(run.device)
        report.epoch_begins(epoch)
        for x, y in epoch:
            output = model(x)
            loss = workload.loss(output, y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            meter.add(loss, workload.correct(output, y), run.batch.samples if run.batch else 0)
            report.step(meter)
            if options.dry_run:
                break
        trained = meter.everywhere(run)  # waits for the device: the clock may be read
        report.epoch_trained(trained)
        report.epoch_ends(trained, evaluate(run, model, workload, test_set, options))
        schedule.step()
        if options.dry_run:
            break
    return network


@torch.inference_mode()
def evaluate(run: Run, model: nn.Module, workload: Workload, test_set: Data, options: TrainOptions) -> Result:
    """Each test sample once, over all ranks."""
    model.eval()
    meter = Meter(run.device)
    for x, y in run.batches(test_set, global_batch=options.test_batch):
        output = model(x)
        meter.add(
            workload.loss(output, y), workload.correct(output, y), run.batch.samples if run.batch else 0
        )
        if options.dry_run:
            break
    return meter.everywhere(run)
