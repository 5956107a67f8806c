"""``rankup data``: list data sets, and download them before a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.table import print_table
from rankup.workloads.data.catalog import CIFAR100_BINARY, DATASETS, DIGITS
from rankup.workloads.data.fetch import fetch
from rankup.workloads.data.places import home, locate

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List data sets, and download them before a job: compute nodes often have no internet.",
)


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(metavar="|".join(DATASETS), help="the data set")],
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="directory for the files; default: where `--data NAME` looks for them"
        ),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="download from this mirror instead; may be repeated"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download the files of a data set to DIR and verify their checksums."""
    target = directory or home(name)
    progress = _progress if sys.stderr.isatty() else None
    fetched = fetch(name, target, mirrors=mirror or None, progress=progress)
    if as_json:
        console.print_json({"name": name, "directory": str(target.absolute()), "fetched": fetched})
        return
    files = DATASETS[name].files
    print(f"{name}: {len(fetched)} of {len(files)} files fetched, all verified, in {target.absolute()}")
    workload = "wideresnet-cifar100" if DATASETS[name].layout is CIFAR100_BINARY else "mnist-cnn"
    print(f"train on it: rankup train {workload} --data {directory or name}")


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List data sets, their download sizes, and where they are on this machine."""
    found = {name: locate(name) for name in (DIGITS, *DATASETS)}
    if as_json:
        facts = [
            {
                "name": name,
                "bytes": DATASETS[name].size if name in DATASETS else 0,
                "path": path and str(path),
            }
            for name, path in found.items()
        ]
        console.print_json(facts)
        return
    rows = []
    for name, path in found.items():
        size = f"{DATASETS[name].size / 1e6:.1f} MB" if name in DATASETS else "none"
        place = path or f"not found; run `rankup data fetch {name}` on a machine with internet"
        rows.append((name, size, str(place)))
    print_table(("name", "download", "on this machine"), rows, fold=("on this machine",))


def _progress(file: str, done: int, size: int) -> None:
    end = "\n" if done >= size else ""
    print(f"\r{file}  {done / 1e3:,.0f} of {size / 1e3:,.0f} kB", end=end, file=sys.stderr, flush=True)
