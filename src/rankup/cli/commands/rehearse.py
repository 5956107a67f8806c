"""``rankup rehearse``: run a job script on a pretended cluster, without a queue, up to the training program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError
from rankup.findings.finding import Severity
from rankup.rehearse.rehearse import Options
from rankup.rehearse.report import Report, report_of
from rankup.rehearse.request import Sizes
from rankup.sites.lookup import find_site

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_VERSIONS = {"21.08": (21, 8), "22.05": (22, 5), "23.02": (23, 2), "23.11": (23, 11), "24.05": (24, 5),
"24.11": (24, 11),
             "25.05": (25, 5)}  # fmt: skip
_MPI = ("openmpi", "hydra", "pals")


@app.command("rehearse", context_settings={"allow_interspersed_args": False})
def rehearse_command(
    script: Annotated[Path, typer.Argument(metavar="JOB.sh", help="a job script of SLURM or PBS")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]…", help="arguments of the script")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="nodes; default: as its directives say")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="GPUs of a node, if its directives do not say")
    ] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CPUs of a node, for jobs that take whole nodes")
    ] = None,
    hosts: Annotated[str, typer.Option(metavar="NAMES", help="names of the nodes: gpu[01-04]")] = "",
    site: Annotated[
        str | None, typer.Option(metavar="SITE", help="take the sizes of this cluster (rankup sites list)")
    ] = None,
    scheduler: Annotated[
        str, typer.Option(metavar="NAME", help="slurm, pbs or torque; default: as its directives say")
    ] = "",
    slurm_version: Annotated[
        str, typer.Option(metavar="VERSION", help="behave as this SLURM: 22.05, 24.05")
    ] = "23.11",
    mpi: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="whose mpirun and mpiexec: openmpi, hydra, pals; default: by options"
        ),
    ] = "",
    time_limit: Annotated[
        int, typer.Option(min=1, max=3600, metavar="SECONDS", help="end the rehearsal after this time")
    ] = 60,
    for_real: Annotated[
        bool, typer.Option("--for-real", help="run the training too, on this machine's CPUs with gloo")
    ] = False,
    unconfined: Annotated[
        bool, typer.Option("--unconfined", help="run without a sandbox: the script can change files")
    ] = False,
    output: Annotated[bool, typer.Option("--output", help="print what the script printed, too")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job script on a pretended cluster, and show which processes would train, and what would go wrong.

    The script runs in a sandbox; stand-ins answer for srun, mpirun, ssh, module and the like. It stops at the training
    program, which is recorded and not started. Exit code 1 if the job would fail or hang.
    """
    capacity = find_site(site, os.environ, Path.cwd()).node if site else None
    sizes = Sizes(
        nodes,
        gpus_per_node if gpus_per_node is not None else capacity.gpus if capacity else None,
        cpus_per_node or (capacity.cpus if capacity else None),
        hosts,
        scheduler,
    )
    if scheduler not in ("", "slurm", "pbs", "torque"):
        raise RankupError("unknown-scheduler", f"--scheduler must be slurm, pbs or torque, got {scheduler!r}")
    options = Options(
        slurm_version=_VERSIONS[_known("SLURM version", slurm_version, _VERSIONS)],
        mpi=_known("MPI", mpi, _MPI) if mpi else "",
        seconds=time_limit,
        for_real=for_real,
        confined=not unconfined,
        arguments=tuple(arguments or ()),
    )
    report = report_of(script, sizes, options, os.environ)
    if as_json:
        console.print_json(report.as_dict())
    else:
        _print(report, output)
    failed = any(finding.severity is Severity.ERROR for finding in report.findings)
    raise typer.Exit(1 if failed else 0)


def _known(kind: str, word: str, known: Collection[str]) -> str:
    if word not in known:
        raise RankupError(
            "unknown-choice",
            f"there is no {kind} {word!r}{did_you_mean(word, known)}",
            hint=f"one of: {', '.join(known)}",
        )
    return word


def _print(report: Report, output: bool) -> None:
    width = min(shutil.get_terminal_size((100, 24)).columns, 200)
    if output:
        print(report.rehearsal.output.rstrip("\n"), file=sys.stderr)
    print("\n".join(report.lines(width)))
