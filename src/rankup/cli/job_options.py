"""The options that describe a job, declared once for ``rankup submit`` and ``rankup render``.

A command takes them by a decorator, and itself declares only what is its own::

    @app.command(context_settings=SCRIPT_LAST)
    @job_options
    def render(context: typer.Context, run_dir: RunDirOption = None, as_json: JsonOption = False) -> None:
        \"\"\"Print the script.\"\"\"
        resolved = resolved_from(context)  # RankupError for whatever is wrong with the job
        if context.params["explain_config"]:
            print(explain(resolved))
            return
        ...

``flags_from(context)`` is what was given on the command line alone, by the keys of ``JobSpec``.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.options import ResumeWithOption, resume_variables
from rankup.cli.shared_options import taking
from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.resolve.resolve import Resolved, resolve
from rankup.spec.jobspec import FANOUTS, LAUNCHERS, JobSpec

# Options end at the script: everything after it is the script's.
SCRIPT_LAST = {"allow_interspersed_args": False}

_Text = str | None
_Number = int | None
_Switch = bool | None
_Several = list[str] | None


def _declared(
    context: typer.Context,
    command: Annotated[
        _Several, typer.Argument(help="script.py ARGUMENTS…, any program, or a job.toml")
    ] = None,
    as_module: Annotated[
        bool, typer.Option("-m", help="the command names a module, as in python -m")
    ] = False,
    job: Annotated[Path | None, typer.Option(metavar="FILE", help="a job.toml; flags win over it")] = None,
    site: Annotated[
        _Text, typer.Option(metavar="NAME", help="the cluster's profile; see rankup sites")
    ] = None,
    name: Annotated[_Text, typer.Option(help="of the run; default: the script's")] = None,
    # Resources
    nodes: Annotated[_Number, typer.Option(metavar="N", help="number of nodes")] = None,
    gpus_per_node: Annotated[_Number, typer.Option(metavar="G", help="0: a job without GPUs")] = None,
    gpu_type: Annotated[_Text, typer.Option(metavar="NAME", help="SLURM's name of them, as a100")] = None,
    nproc_per_node: Annotated[_Number, typer.Option(metavar="P", help="default: one per GPU, else 1")] = None,
    cpus_per_task: Annotated[_Number, typer.Option(metavar="C", help="cores of each process")] = None,
    mem: Annotated[_Text, typer.Option(metavar="SIZE", help="per node: 32G")] = None,
    time: Annotated[_Text, typer.Option(metavar="TIME", help="90m, 24h, 1d12h or HH:MM:SS")] = None,
    queue: Annotated[_Text, typer.Option("--queue", "--partition", help="where to wait")] = None,
    account: Annotated[_Text, typer.Option(help="the project that pays")] = None,
    exclusive: Annotated[_Switch, typer.Option("--exclusive/--no-exclusive", help="whole nodes")] = None,
    directives: Annotated[
        _Several,
        typer.Option("--directive", metavar="TEXT", help="as behind #SBATCH or #PBS; may be repeated"),
    ] = None,
    # Who starts the ranks
    launcher: Annotated[_Text, typer.Option(metavar="|".join(LAUNCHERS), help="who forms the ranks")] = None,
    fanout: Annotated[_Text, typer.Option(metavar="|".join(FANOUTS), help="who reaches the nodes")] = None,
    max_restarts: Annotated[_Number, typer.Option(metavar="K", help="torchrun's, within one job")] = None,
    # Their environment
    pre_modules: Annotated[
        _Several, typer.Option(metavar="BASH", help="a line before the modules; may be repeated")
    ] = None,
    module_purge: Annotated[
        _Switch, typer.Option("--module-purge/--no-module-purge", help="unload all modules first")
    ] = None,
    modules: Annotated[
        _Several, typer.Option("--module", help="to load, in this order; may be repeated")
    ] = None,
    venv: Annotated[_Text, typer.Option(metavar="DIR", help="a virtual environment")] = None,
    conda: Annotated[_Text, typer.Option(metavar="NAME|DIR", help="a conda environment")] = None,
    container: Annotated[_Text, typer.Option(metavar="IMAGE", help="an Apptainer image")] = None,
    binds: Annotated[
        _Several, typer.Option("--bind", metavar="SRC[:DST[:ro]]", help="into the container; may be repeated")
    ] = None,
    env: Annotated[
        _Several,
        typer.Option(metavar="K=V|NAME", help="a variable; NAME alone: your value of it, passed as a secret"),
    ] = None,
    pre: Annotated[
        _Several, typer.Option(metavar="BASH", help="a line to run first; may be repeated")
    ] = None,
    python: Annotated[_Text, typer.Option(help="what runs *.py")] = None,
    # When time runs out
    max_requeues: Annotated[
        _Number, typer.Option(metavar="K", help="go on in at most K further jobs")
    ] = None,
    stop_before: Annotated[
        _Text, typer.Option(metavar="TIME", help="ask to save so long before the end")
    ] = None,
    resume_with: ResumeWithOption = None,
    # Around the job
    mail: Annotated[
        _Text, typer.Option(metavar="ADDRESS", help="for the begin, the end and failures")
    ] = None,
    after: Annotated[
        _Several, typer.Option(metavar="ID", help="once this job ended well; may be repeated")
    ] = None,
    array: Annotated[_Text, typer.Option(metavar="0-9[%4]", help="a job for each index")] = None,
    runs_root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where run directories are made")
    ] = None,
    nccl_debug: Annotated[
        _Switch, typer.Option("--nccl-debug/--no-nccl-debug", help="NCCL says what it does")
    ] = None,
    sample_gpus: Annotated[
        _Number, typer.Option(metavar="SECONDS", help="log the GPUs' use so often")
    ] = None,
    explain_config: Annotated[
        bool, typer.Option("--explain-config", help="say where each value came from")
    ] = False,
) -> None:
    """Its signature is all that matters: the keys of ``JobSpec``, and where else to look for them."""


job_options = taking(_declared)


def flags_from(context: typer.Context) -> dict[str, Any]:
    """The keys of ``JobSpec`` that were flags, and their values; an empty value asks for none (``--mem ""``)."""
    flags: dict[str, Any] = {}
    for key, value in context.params.items():
        source = context.get_parameter_source(key)
        if (
            key not in JobSpec.model_fields
            or key == "command"
            or source is None
            or source.name != "COMMANDLINE"
        ):
            continue
        flags[key] = tuple(v for v in value if v != "") if isinstance(value, list) else value
    if "env" in flags:
        flags |= _variables(flags.pop("env"))
    if chosen := resume_variables(context.params.get("resume_with")):
        flags["env"] = {**flags.get("env", {}), **chosen}
    return flags


def resolved_from(context: typer.Context, *, ignore: Collection[str] = ()) -> Resolved:
    """The job that the command line asks for, with nothing left to decide. ``ignore``: codes of advice."""
    asked = context.params
    command = (*(["-m"] if asked["as_module"] else []), *(asked["command"] or []))
    file = asked["job"]
    if file is None and command and command[0].endswith(".toml"):
        if len(command) > 1:
            raise RankupError(
                "options-after-file",
                f"what stands behind {command[0]} would be a script's arguments, and a job.toml has its own",
                context=" ".join(command[1:]),
                hint=f"options come first: {context.info_name} --nodes 2 {command[0]}",
            )
        file, command = Path(command[0]), ()
    flags = flags_from(context)
    if asked.get("interactive") and not command and file is None:
        command, flags = ("bash",), {"name": "interactive", **flags}
    return resolve(
        flags,
        command=command,
        file=file,
        site=asked["site"],
        env=os.environ,
        folder=Path.cwd(),
        ignore=ignore,
    )


def explain(resolved: Resolved) -> str:
    """A line for each value: key, value, and where it came from."""
    rows = [("site", resolved.site.name, resolved.origin["site"])]
    for key in JobSpec.model_fields:
        value = getattr(resolved.spec, key)
        if key == "env":
            rows += [(f"env.{k}", repr(v), resolved.origin[f"env.{k}"]) for k, v in value.items()]
        else:
            rows.append((key, _shown(key, value), resolved.origin[key]))
    width = max(len(key) for key, *_ in rows)
    # A long list of modules moves its own origin to the right, and not those of all other lines.
    return "\n".join(f"{key:<{width}}  {value:<32}  {origin}" for key, value, origin in rows)


def _variables(given: tuple[str, ...]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    return {
        "env": {name: value for name, equals, value in pairs if equals},
        "secrets": tuple(name for name, equals, _ in pairs if not equals),
    }


def _shown(key: str, value: Any) -> str:
    if value in (None, "", ()):
        return "-"
    if key in ("time", "stop_before"):
        return clock(value)
    if key == "mem":
        return size(value)
    return " ".join(value) if isinstance(value, tuple) else str(value)
