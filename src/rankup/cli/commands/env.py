"""``rankup env``: the Python environment of jobs, built for the machines that they run on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.batch.env_create import modules_of, needs_job
from rankup.cli import console
from rankup.cli.env_build import build, show_plan
from rankup.cli.options import JsonOption
from rankup.script.python_environment import Environment
from rankup.sites.lookup import choose_site

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Environments for jobs, built where jobs run."
)


@app.callback()
def env() -> None:
    """Environments for jobs, built where jobs run."""


@app.command("create")
def create(
    site: Annotated[str | None, typer.Option(metavar="NAME", help="the cluster's profile")] = None,
    requirements: Annotated[Path | None, typer.Option(metavar="FILE", help="installed after torch")] = None,
    python: Annotated[str, typer.Option(metavar="EXE", help="the Python it is made of")] = "python3",
    name: Annotated[str, typer.Option(help="default: the site's")] = "",
    path: Annotated[
        Path, typer.Option(metavar="DIR", help="built is DIR/NAME-ARCHITECTURE; all nodes must see DIR")
    ] = Path("envs"),
    torch: Annotated[
        str, typer.Option(metavar="SPEC", help="'torch==2.6 torchvision', a wheel, or none")
    ] = "torch",
    torch_index: Annotated[str, typer.Option(metavar="URL", help="where pip finds that build")] = "",
    cuda: Annotated[str, typer.Option(metavar="auto|12.6|cpu", help="what torch must be built for")] = "auto",
    module: Annotated[
        list[str] | None, typer.Option(help="to load first, in place of the site's; may be repeated")
    ] = None,
    account: Annotated[str | None, typer.Option(help="where a job is needed: the project that pays")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "--partition", help="where it waits")] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help="its limit; default: 1h")] = None,
    directive: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="as behind #SBATCH or #PBS; may be repeated")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the script, and build nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a virtual environment with torch and requirements; in a job where compute nodes differ from this one."""
    chosen, _ = choose_site(site, os.environ, Path.cwd())
    environment = Environment(
        folder=path.expanduser().absolute(),
        name=name or chosen.name,
        python=python,
        modules=modules_of(chosen, gpu=cuda != "cpu") if module is None else tuple(m for m in module if m),
        torch=() if torch == "none" else tuple(torch.split()),
        torch_index=torch_index,
        cuda=cuda,
        requirements=requirements and requirements.expanduser().absolute(),
    )
    asked = {"account": account, "queue": queue, "time": time, "directives": tuple(directive or ())}
    flags = {key: value for key, value in asked.items() if value}
    job = (chosen.name, flags) if needs_job(chosen, platform.machine()) else None
    if chosen.defaults.get("container"):
        note = f"note: jobs at {chosen.name} run in a container unless they say --container '': this is outside it"
        print(note, file=sys.stderr)
    if dry_run:
        show_plan(environment, job, as_json)
        return
    facts = build(environment, job, chosen.node.arch or platform.machine(), as_json)
    if as_json:
        console.print_json(facts)
    else:
        print(f"use it: rankup submit --venv {facts['path']}")
