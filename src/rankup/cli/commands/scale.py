"""``rankup scale``: the same work on 1, 2, … processes, and what that brought, if it can be said honestly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli import console
from rankup.cli.lines import LineView
from rankup.cli.options import JsonOption
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
from rankup.core.units import duration
from rankup.scale.grid import Turn, count_of, parse_process_counts, turns
from rankup.scale.machine import Machine
from rankup.scale.measured import Measured
from rankup.scale.report import report, write
from rankup.scale.study import measure
from rankup.workloads import WORKLOADS

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def scale(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help=f"{', '.join(WORKLOADS)}, or module:Class of your own")],
    nproc_per_node: Annotated[str, typer.Option(metavar="N,N,…", help="the fewest are the baseline")] = "1,2",
    repeats: Annotated[int, typer.Option(help="measured runs of each, after a warm-up")] = 3,
    epochs: Annotated[int, typer.Option()] = 5,
    global_batch: Annotated[int, typer.Option(help="samples per step over all processes")] = 64,
    test_batch: Annotated[int, typer.Option(help="the same, in evaluations")] = 1000,
    lr: Annotated[float, typer.Option()] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="adam, adadelta or sgd")] = "adam",
    gamma: Annotated[float, typer.Option(help="factor on the learning rate after each epoch")] = 0.7,
    data: DataOption = "digits",
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
    settings: SettingsOption = None,
    threads: Annotated[int | None, typer.Option(help="per process; default: cores / processes")] = None,
    name: Annotated[str, typer.Option(help="of the runs; default: the workload's")] = "",
    runs_root: Annotated[Path, typer.Option(help="where run directories are made")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Measure the same work on 1, 2, … processes: an honest speed-up table, or the reason why there is none."""
    require_torch()
    counts = parse_process_counts(nproc_per_node)
    order = turns(counts, repeats)
    options = asked_for(
        context,
        {
            "data": data,
            "epochs": epochs,
            "global_batch": global_batch,
            "test_batch": test_batch,
            "lr": lr,
            "optimizer": optimizer,
            "gamma": gamma,
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
            "settings": settings_from(settings),
        },
    )
    jobs = {
        turn: workload_job(
            workload,
            str(turn.processes),
            name=name,
            runs_root=runs_root,
            threads=threads,
            options={**options, "dry_run": turn.repeat == 0, "snapshot_every": "off"},
        )[0]
        for turn in order
    }
    here = Machine.here()
    study = measure(order, jobs.__getitem__, TurnLines())
    made = report(study, here)
    path = write(made, study.folder)
    if as_json:
        console.print_json(made.results)
    else:
        print("\n" + made.text)
    print(f"results    {path}", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(0 if made.comparable else 1)


class TurnLines(LineView):
    """A line per run on stderr; of what the ranks print, only their errors: a table is to come."""

    def begins(self, number: int, total: int, turn: Turn) -> None:
        what = f"repeat {turn.repeat}" if turn.repeat else "warm-up"
        print(f"run {number} of {total}: {count_of(turn.processes)}, {what} …", file=sys.stderr, flush=True)

    def ended(self, measured: Measured) -> None:
        if measured.turn.repeat:
            trained = f"{duration(measured.seconds)} of training, test accuracy {measured.accuracy:.2%}"
            print(f"  {trained}", file=sys.stderr, flush=True)

    def line(self, rank: int | None, stream: str, text: str) -> None:
        if stream == "err":
            super().line(rank, stream, text)
