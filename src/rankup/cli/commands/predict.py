"""``rankup predict``: what larger sizes will reach, and which one to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli import prediction_modes
from rankup.cli.job_options import flags_from, some_job_options
from rankup.cli.options import JsonOption
from rankup.cli.prediction_modes import Asked
from rankup.cli.shared_options import taking

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Of the job whose wait in the queue is asked; its shape follows from each size.
_JOB = ("time", "queue", "account", "gpu_type")
_POINTS, _TARGET, _LINKS, _SIMULATE = "Measurements", "Questions", "Links", "Simulation"


@app.command()
@taking(some_job_options("submit", *_JOB))
def predict(
    results: Annotated[
        Path | None,
        typer.Argument(metavar="[RESULTS]", help="results.json of a study, or a CSV table devices,rate"),
    ] = None,
    points: Annotated[
        str,
        typer.Option(
            metavar='"N:RATE …"', help="devices and samples/s, instead of a file", rich_help_panel=_POINTS
        ),
    ] = "",
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="devices of a full node", rich_help_panel=_POINTS)
    ] = None,
    scaling: Annotated[
        str,
        typer.Option(
            metavar="weak|strong",
            help="samples per device fixed, or the global batch; default: the study's, or weak",
            rich_help_panel=_POINTS,
        ),
    ] = "",
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="of a study with several", rich_help_panel=_POINTS)
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="N,NxM,…", help="sizes to predict; default: twice the largest", rich_help_panel=_TARGET
        ),
    ] = "",
    samples: Annotated[
        float | None, typer.Option(metavar="N", help="samples to process in all", rich_help_panel=_TARGET)
    ] = None,
    samples_to_target: Annotated[
        str,
        typer.Option(
            metavar='"BATCH:N …"',
            help="samples to the target accuracy, by global batch",
            rich_help_panel=_TARGET,
        ),
    ] = "",
    batch_per_device: Annotated[
        int, typer.Option(min=1, metavar="N", help="samples per step on each device", rich_help_panel=_TARGET)
    ] = 1,
    deadline: Annotated[
        str,
        typer.Option(metavar="TIME", help="training must end within it, e.g. 24h", rich_help_panel=_TARGET),
    ] = "",
    min_efficiency: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, metavar="SHARE", help="recommend no size below it", rich_help_panel=_TARGET
        ),
    ] = 0.5,
    site: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="ask the scheduler of this site how long a job of each size would wait",
            rich_help_panel=_TARGET,
        ),
    ] = "",
    measure_links: Annotated[
        bool,
        typer.Option(
            "--measure-links", help="time all-reduces on this machine or allocation", rich_help_panel=_LINKS
        ),
    ] = False,
    nproc_per_node: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="processes per node to measure with", rich_help_panel=_LINKS),
    ] = 2,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the measured links", rich_help_panel=_LINKS)
    ] = None,
    links: Annotated[
        Path | None, typer.Option(metavar="FILE", help="use measured links", rich_help_panel=_LINKS)
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate", help="from a description of the work and the machine", rich_help_panel=_SIMULATE
        ),
    ] = False,
    workload: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="gradients of a workload (a name or module:Class)", rich_help_panel=_SIMULATE
        ),
    ] = "",
    parameters: Annotated[
        str,
        typer.Option(
            metavar="SHAPES",
            help="shapes of the parameters in fp32, e.g. 512x784,512,10x512,10",
            rich_help_panel=_SIMULATE,
        ),
    ] = "",
    compute: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="forward and backward of one step on one device",
            rich_help_panel=_SIMULATE,
        ),
    ] = None,
    fabric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="between nodes: ndr, hdr, edr, slingshot11, 100gbe, 50gbe, 25gbe, none",
            rich_help_panel=_SIMULATE,
        ),
    ] = "hdr",
    inside: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="within a node: nvlink4, nvlink3, nvlink2, pcie4, none",
            rich_help_panel=_SIMULATE,
        ),
    ] = "nvlink3",
    ports: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="ports of a node to the network", rich_help_panel=_SIMULATE),
    ] = 1,
    node_mtbf: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", help="mean time between failures of one node", rich_help_panel=_SIMULATE
        ),
    ] = None,
    save_seconds: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="S", help="how long a snapshot stops the training", rich_help_panel=_SIMULATE
        ),
    ] = 10.0,
    restart_seconds: Annotated[
        float,
        typer.Option(min=0.0, metavar="S", help="from a failure to the next step", rich_help_panel=_SIMULATE),
    ] = 300.0,
    as_json: JsonOption = False,
    **job: Any,
) -> None:
    """Predict what larger sizes reach, with an interval, and recommend one; or simulate a machine.

    A prediction for several nodes needs measurements on one node and on two.
    """
    given = locals()
    given.pop("simulate"), given.pop("measure_links")
    asked = Asked(**{**given, "job": flags_from(job)})
    if measure_links:
        prediction_modes.measure_links_here(asked)
    elif simulate:
        prediction_modes.simulate_machine(asked)
    else:
        prediction_modes.predict_sizes(asked)
