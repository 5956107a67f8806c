"""``rankup predict``: what larger sizes will reach, and which one to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.job_options import flags_from, some_job_options
from rankup.cli.options import JsonOption, taking
from rankup.cli.prediction import Asked, predict_sizes

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Of the job whose wait in the queue is asked; its shape follows from each size.
_JOB = ("time", "queue", "account", "gpu_type")
_POINTS, _TARGET, _FAILURES = "Measurements", "Questions", "Failures"


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
    node_mtbf: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="mean time between failures of one node: says how often to save",
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    save_seconds: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="S", help="how long a snapshot stops the training", rich_help_panel=_FAILURES
        ),
    ] = 10.0,
    restart_seconds: Annotated[
        float,
        typer.Option(min=0.0, metavar="S", help="from a failure to the next step", rich_help_panel=_FAILURES),
    ] = 300.0,
    as_json: JsonOption = False,
    **job: Any,
) -> None:
    """Predict what larger sizes reach, with an interval, and recommend one.

    A prediction for several nodes needs measurements on one node and on two; within a node, on three sizes.
    """
    given = locals()
    predict_sizes(Asked(**{**given, "job": flags_from(job)}))
