"""``rankup train``: a built-in workload or your own, on the processes of this machine or allocation."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli import console
from rankup.cli.options import JsonOption, NprocOption
from rankup.cli.training_options import (
    AccumulateOption,
    BaseBatchOption,
    ChannelsLastOption,
    ClipOption,
    CompileOption,
    ExactOption,
    FusedOption,
    LrRuleOption,
    MicrobatchesOption,
    PrecisionOption,
    ShardSizeOption,
    StaticGraphOption,
    StrategyOption,
    SyncBatchnormOption,
    VirtualShardsOption,
    WarmupOption,
)
from rankup.cli.workload_job import (
    DataOption,
    SettingsOption,
    asked_for,
    require_torch,
    settings_from,
    workload_job,
)
from rankup.core.records import read_records
from rankup.errors import RankupError
from rankup.jobs.local import View, execute
from rankup.workloads import WORKLOADS
from rankup.world import World

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def train(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help=f"{', '.join(WORKLOADS)}, or module:Class of your own")],
    epochs: Annotated[int, typer.Option()] = 5,
    global_batch: Annotated[int, typer.Option(help="samples per step over all processes")] = 64,
    test_batch: Annotated[int, typer.Option(help="the same, in evaluations")] = 1000,
    lr: Annotated[float, typer.Option()] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="adam, adadelta or sgd")] = "adam",
    momentum: Annotated[float, typer.Option(help="of sgd")] = 0.9,
    weight_decay: Annotated[float, typer.Option()] = 0.0,
    nesterov: Annotated[bool, typer.Option("--nesterov", help="for sgd")] = False,
    gamma: Annotated[float, typer.Option(help="factor on the learning rate after each epoch")] = 0.7,
    target_accuracy: Annotated[
        float | None, typer.Option(metavar="SHARE", help="stop when the test accuracy is this good, as 0.9")
    ] = None,
    patience: Annotated[int, typer.Option(metavar="EPOCHS", help="… in so many epochs in a row")] = 1,
    data: DataOption = "digits",
    nproc_per_node: NprocOption = "auto",
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: PrecisionOption = "fp32",
    strategy: StrategyOption = "auto",
    accumulate: AccumulateOption = 1,
    clip: ClipOption = None,
    lr_rule: LrRuleOption = "none",
    base_batch: BaseBatchOption = None,
    warmup: WarmupOption = 0,
    fused: FusedOption = True,
    compile: CompileOption = False,
    channels_last: ChannelsLastOption = False,
    sync_batchnorm: SyncBatchnormOption = False,
    static_graph: StaticGraphOption = False,
    exact: ExactOption = "same-world",
    virtual_shards: VirtualShardsOption = 4,
    shard_size: ShardSizeOption = 0,
    microbatches: MicrobatchesOption = 0,
    snapshot_every: Annotated[str, typer.Option(help="10m, 500 steps, 2 epochs, or off")] = "10m",
    log_interval: Annotated[int, typer.Option(help="a line every N steps; 0: every few seconds")] = 0,
    log: Annotated[str | None, typer.Option(help="tensorboard: its files go to the run directory")] = None,
    save_model: Annotated[Path | None, typer.Option(help="write the state_dict here at the end")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="one batch of training and of testing")] = False,
    settings: SettingsOption = None,
    threads: Annotated[int | None, typer.Option(help="per process; default: cores / processes")] = None,
    name: Annotated[str, typer.Option(help="of the run; default: the workload's")] = "",
    runs_root: Annotated[Path, typer.Option(help="where run directories are made")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Train, evaluate after each epoch, and end with a summary; records go to the run directory.

    A workload may have defaults of its own where a flag is not given: the summary marks them.
    """
    require_torch()
    if log == "tensorboard" and find_spec("tensorboard") is None:
        raise RankupError(
            "no-tensorboard", "tensorboard is not installed", hint="pip install 'rankup[report]'"
        )
    bar = sys.stdout.isatty() and not as_json
    job, options = workload_job(
        workload,
        nproc_per_node,
        name=name,
        runs_root=runs_root,
        threads=threads,
        options=asked_for(
            context,
            {
                "data": data,
                "epochs": epochs,
                "global_batch": global_batch,
                "test_batch": test_batch,
                "lr": lr,
                "optimizer": optimizer,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "gamma": gamma,
                "target_accuracy": target_accuracy,
                "patience": patience,
                "seed": seed,
                "device": device,
                "precision": precision,
                "strategy": strategy,
                "accumulate": accumulate,
                "clip": clip,
                "lr_rule": lr_rule,
                "base_batch": base_batch,
                "warmup": warmup,
                "fused": fused,
                "compile": compile,
                "channels_last": channels_last,
                "sync_batchnorm": sync_batchnorm,
                "static_graph": static_graph,
                "exact": exact,
                "virtual_shards": virtual_shards,
                "shard_size": shard_size,
                "microbatches": microbatches,
                "snapshot_every": snapshot_every,
                "log_interval": log_interval,
                "log": log,
                "save_model": str(save_model.absolute()) if save_model else None,
                "dry_run": dry_run,
                "bar": bar,
                "settings": settings_from(settings),
            },
        ),
    )
    if World.detect().world_size > 1:  # a launcher has started us once per rank already
        from rankup.train.__main__ import work

        work(options)
        return
    from rankup.cli.progress import BarView, PlainView

    with ExitStack() as stack:
        view: View = stack.enter_context(BarView()) if bar else PlainView(to_stderr=as_json)
        result = execute(job, view, debug=console.debugging())
    if error := result.run.left_error():
        raise error
    if as_json and result.code == 0:
        (summary,) = read_records(result.run.records / "epochs.jsonl", "summary")
        console.print_json({"run": str(result.run.path), **summary})
    if result.error is not None:
        console.draw_error(result.error)
    elif result.code == 0:
        print(f"records    {result.run.records}", file=sys.stderr if as_json else sys.stdout)
    elif result.code > 128:
        print(
            f"ended by {signal.Signals(result.code - 128).name}; logs in {result.run.logs}", file=sys.stderr
        )
    raise typer.Exit(result.code)
