"""The loop of ``rankup train``. It runs on many processes by the library's public calls alone."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from rankup.runtime.api import Run
from rankup.train.early_stop import EarlyStop
from rankup.train.learning_rate import warmup_for
from rankup.train.metrics import EvaluationResult, measure
from rankup.train.optimizers import optimizer_for
from rankup.train.options import TrainOptions
from rankup.train.report import TrainingReport
from rankup.train.workload import Data, Workload, ready_data


def train(run: Run, workload: Workload, options: TrainOptions, report: TrainingReport) -> None:
    """Train and evaluate ``options.epochs`` times, or until the target is reached."""
    train_set, test_set = ready_data(run, workload, options.data)
    model, optimizer, data = run.prepare(
        workload.model(),
        optimizer_for(options),
        train_set,
        global_batch=options.global_batch,
        accumulate=options.accumulate,
        clip=options.clip,
        compile=options.compile,
        channels_last=options.channels_last,
        sync_batchnorm=options.sync_batchnorm,
    )
    schedule = StepLR(optimizer, step_size=1, gamma=options.gamma)
    early_stop = EarlyStop(options.target_accuracy, options.patience)
    run.register(schedule=schedule, early_stop=early_stop)
    warmup = warmup_for(options, optimizer)
    if warmup is not None:
        run.register(warmup=warmup)

    for epoch in run.epochs(options.epochs, data):
        # Check at the start of an epoch: a resumed run may have reached the target before.
        if early_stop.reached:
            if options.snapshot_every != "off":
                run.save()
            break
        model.train()
        for x, y in epoch:
            loss, output = run.strategy.forward_backward(model, workload.loss, x, y)
            if run.step(optimizer) and warmup is not None:
                warmup.step()
            measure(run, workload, loss, output, y)
            if loss is not None:
                run.log(loss=loss)
            report.step(epoch)
            if options.dry_run and run.batch.last:
                break
        trained = EvaluationResult.of(run.meter.means())
        tested = evaluate(run, model, workload, test_set, options)
        early_stop.epoch_ended(tested.accuracy)
        report.epoch_ends(epoch, trained, tested, target_reached=early_stop.reached)
        schedule.step()
        if options.dry_run:
            break


@torch.no_grad()
def evaluate(
    run: Run, model: nn.Module, workload: Workload, test_set: Data, options: TrainOptions
) -> EvaluationResult:
    """Evaluate each test sample once, over all ranks."""
    model.eval()
    for x, y in run.batches(test_set, global_batch=options.test_batch):
        output = model(x)
        # The last stage of a pipeline has the output, and counts the batch.
        measure(run, workload, None if output is None else workload.loss(output, y), output, y)
        if options.dry_run:
            break
    return EvaluationResult.of(run.meter.means())
