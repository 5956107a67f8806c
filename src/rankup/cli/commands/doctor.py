"""``rankup doctor``: a preflight of this machine, of an allocation, or of the tasks of a launcher."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.doctor.examine import Wishes, examine
from rankup.doctor.verdict import Examination
from rankup.findings.engine import fails

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    script: Annotated[
        str, typer.Argument(metavar="[SCRIPT]", help="a program that all nodes should read alike")
    ] = "",
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="the shared directory to probe")
    ] = Path(),
    nproc_per_node: Annotated[
        int, typer.Option("--nproc-per-node", metavar="N", min=0, help="ranks per node; default: one per GPU")
    ] = 0,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="the job's interpreter, if it is another one")
    ] = "",
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="port of rank 0 (default: MASTER_PORT)"
        ),
    ] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=4, help="after which hosts are missing")
    ] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="leave out what needs torch")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="write facts and findings as JSON")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Name the one broken thing before the job waits for it: hosts, names, ports, GPUs, cores, versions, directory.

    Alone it examines this machine; in an allocation all of its nodes. Started as tasks (srun rankup doctor) it also
    sees their cores and GPUs, and rank 0 reports. Exit code 1 if something is broken.
    """
    if as_json:
        console.answer_in_json()
    examination = examine(
        Wishes(folder, timeout, nproc=nproc_per_node, script=script, python=python, port=port, quick=quick)
    )
    if examination is None:
        return
    if out is not None:
        _write(examination, out)
    if as_json:
        console.print_json(examination.as_dict())
    else:
        _show(examination)
    raise typer.Exit(1 if fails(examination.findings) else 0)


def _show(examination: Examination) -> None:
    for line in examination.lines():
        print(console.coloured_severity(line, sys.stdout))


def _write(examination: Examination, path: Path) -> None:
    import json

    from rankup.core.files import write_atomic

    write_atomic(path.absolute(), json.dumps(examination.as_dict(), indent=2, default=str) + "\n")
