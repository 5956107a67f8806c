"""``python -m rankup.train OPTIONS``: one rank of ``rankup train``, under any launcher or none.

``OPTIONS`` is a ``TrainOptions`` as JSON.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from rankup.core.rundir import RunDir
from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.init import deterministic_kernels, init
from rankup.train.breakdown import breakdown
from rankup.train.learning_rate import describe_rate
from rankup.train.loop import train
from rankup.train.options import TrainOptions
from rankup.train.parallel import strategy_for
from rankup.train.report import TrainingReport
from rankup.train.workload import defaults_of, make_workload


def work(options: TrainOptions) -> None:
    """Train as one rank."""
    torch.set_flush_denormal(True)  # denormals make CPUs a hundred times slower; training does not need them
    sys.path.insert(0, str(Path.cwd()))  # a user's own workload may be in the current directory
    workload = make_workload(options.workload, options.settings)
    options = options.with_defaults(defaults_of(workload))
    run = init(
        seed=options.seed,
        device=options.device,
        precision=options.precision,
        strategy=strategy_for(options, workload),
        exact=options.exact,
        virtual_shards=options.virtual_shards,
        snapshots=Snapshots(every=options.snapshot_every),
        log=options.log,
    )
    if options.deterministic:
        deterministic_kernels()
    if line := describe_rate(options):
        run.print(line)
    if options.breakdown:
        breakdown(run, workload, options)
        return
    report = TrainingReport(run, options, workload)
    train(run, workload, options, report)
    if options.save_model:
        run.save_model(options.save_model)
    report.ends()


def main() -> None:
    """Run one rank. A RankupError is written to the run directory, and the command line prints it once."""
    try:
        work(TrainOptions.from_json(sys.argv[1]))
    except RankupError as error:
        if os.environ.get("RANKUP_DEBUG", "") not in ("", "0"):
            raise
        run = RunDir.from_environment()
        if run is not None:
            run.leave_error(error)
        else:
            say(f"error: {error}")
        os._exit(error.exit_code)  # the other ranks may wait in a collective: exit without one


if __name__ == "__main__":
    main()
