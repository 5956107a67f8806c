"""``rankup doctor``: a preflight of this machine, of an allocation, or of the tasks of a launcher."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.core.columns import aligned
from rankup.core.files import write_atomic
from rankup.doctor.examine import Wishes, examine
from rankup.doctor.judges.before import read_before
from rankup.doctor.micro import BENCHMARKS
from rankup.doctor.verdict import Examination
from rankup.doctor.works import works
from rankup.errors import RankupError
from rankup.findings.engine import fails

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_MICRO = "Micro-benchmarks"


@app.command()
def doctor(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[SCRIPT]",
            help=f"a program that all nodes should read alike, or a micro-benchmark: {', '.join(BENCHMARKS)}",
            show_default=False,
        ),
    ] = "",
    folder: Annotated[
        Path,
        typer.Option(
            "--dir", metavar="DIR", help="the shared directory to probe", show_default="the current one"
        ),
    ] = Path(),
    nproc_per_node: Annotated[
        int,
        typer.Option(
            "--nproc-per-node",
            metavar="N",
            min=0,
            help="ranks per node",
            show_default="one per GPU; without GPUs 1",
        ),
    ] = 0,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="the job's interpreter, if it is another one")
    ] = "",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65535,
            help="where rank 0 will listen",
            show_default="MASTER_PORT; without it no port is tried",
        ),
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=4, help="after which hosts are missing", show_default="10"
        ),
    ] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="leave out what needs torch")] = False,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="FILE", help="an earlier result, of --out")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="write facts and findings as JSON")
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="N,N", help="features, rows or bytes", rich_help_panel=_MICRO)
    ] = "",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="fp32, bf16, fp16 or fp64", rich_help_panel=_MICRO)
    ] = "fp32",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="the rate by size as a picture", rich_help_panel=_MICRO),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Name the one broken thing before a job waits for it: hosts, names, ports, GPUs, cores, versions, directory.

    Alone it examines this machine; in an allocation all of its nodes. Started as tasks (srun rankup doctor) it also
    sees their cores and GPUs, and rank 0 reports. Exit code 1 if something is broken.
    """
    if as_json:
        console.answer_in_json()
    if what in BENCHMARKS and not Path(what).exists():
        from rankup.cli.micro_benchmarks import run_benchmark

        run_benchmark(what, sizes, dtype, nproc_per_node, plot, as_json=as_json)
        return
    if sizes or plot is not None:
        raise RankupError(
            "no-benchmark",
            "--sizes and --plot need a micro-benchmark",
            hint=f"one of: {', '.join(BENCHMARKS)}",
        )
    before = read_before(compare) if compare is not None else None
    examination = examine(
        Wishes(
            folder,
            timeout,
            nproc=nproc_per_node,
            script=what,
            python=python,
            port=port,
            quick=quick,
            before=before,
        )
    )
    if examination is None:  # a task that takes part: rank 0 reports
        return
    if out is not None:
        write_atomic(out.absolute(), json.dumps(examination.as_dict(), indent=2, default=str) + "\n")
    if as_json:
        console.print_json(examination.as_dict())
    else:
        _show(examination)
    raise typer.Exit(1 if fails(examination.findings) else 0)


def _show(examination: Examination) -> None:
    print("\n".join(aligned([[f"{name}:", text] for name, text in works(examination.facts)])))
    for line in examination.lines():
        print(console.coloured_severity(line, sys.stdout))
