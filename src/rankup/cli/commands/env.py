"""``rankup env``: the Python environment of jobs, built for the machines that they run on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated

import typer

from rankup.batch.env_create import modules_of, needs_job
from rankup.cli.env_build import build, show_plan
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.script.env_build import Environment
from rankup.sites.lookup import choose_site

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Build Python environments for jobs.")


@app.callback()
def env() -> None:
    """Build Python environments for jobs."""


@app.command("create")
def create(
    site: Annotated[str | None, typer.Option(metavar="NAME", help="the cluster's profile")] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="requirements to install after torch")
    ] = None,
    python: Annotated[str, typer.Option(metavar="EXE", help="Python to build it with")] = "python3",
    name: Annotated[str, typer.Option(help="name of the environment; default: the site's")] = "",
    path: Annotated[
        Path, typer.Option(metavar="DIR", help="build DIR/NAME-ARCHITECTURE; all nodes must see DIR")
    ] = Path("envs"),
    torch: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="what to install as torch: 'torch==2.6 torchvision', a wheel, or none"
        ),
    ] = "torch",
    torch_index: Annotated[
        str, typer.Option(metavar="URL", help="index of pip with that build of torch")
    ] = "",
    wheels: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="install from the wheels in DIR alone, without any network"),
    ] = None,
    cuda: Annotated[
        str, typer.Option(metavar="auto|12.6|cpu", help="CUDA version that torch must be built for")
    ] = "auto",
    module: Annotated[
        list[str] | None, typer.Option(help="module to load first, instead of the site's; may be repeated")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(help="for a job: the account to charge", rich_help_panel="If a job is needed"),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "--partition",
            help="queue or partition of the job",
            rich_help_panel="If a job is needed",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="time limit of the job; default: 1h", rich_help_panel="If a job is needed"
        ),
    ] = None,
    directive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="a line for #SBATCH or #PBS; may be repeated",
            rich_help_panel="If a job is needed",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the script, build nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build a virtual environment with torch and your requirements.

    If the compute nodes have another architecture than this machine, it is built in a short job.
    """
    chosen, _ = choose_site(site, os.environ, Path.cwd())
    environment = Environment(
        folder=path.expanduser().absolute(),
        name=name or chosen.name,
        python=python,
        modules=modules_of(chosen, gpu=cuda != "cpu") if module is None else tuple(m for m in module if m),
        torch=() if torch == "none" else tuple(torch.split()),
        torch_index=torch_index,
        wheels=wheels.absolute() if wheels else None,
        cuda=cuda,
        requirements=requirements and requirements.expanduser().absolute(),
    )
    asked = {"account": account, "queue": queue, "time": time, "directives": tuple(directive or ())}
    flags = {key: value for key, value in asked.items() if value}
    job = (chosen.name, flags) if needs_job(chosen, platform.machine()) else None
    if chosen.defaults.get("container"):
        console.say(
            f"note: jobs at {chosen.name} run in a container and do not see this environment, "
            "unless submitted with --container ''"
        )
    if dry_run:
        show_plan(environment, job, as_json)
        return
    facts = build(environment, job, chosen.node.arch or platform.machine(), as_json)
    if as_json:
        console.print_json(facts)
    else:
        print(f"submit with it: rankup submit --venv {facts['path']}")
