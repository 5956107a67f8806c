"""The plan of a study, from the command line of ``rankup scale`` and from a study.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from rankup.cli.job_options import flags_from
from rankup.cli.options import given
from rankup.cli.study_jobs import check_keys, check_processes, fair_threads, is_workload
from rankup.cli.training_options import training_from, training_from_table
from rankup.cli.workload_job import require_torch
from rankup.core.nearest import did_you_mean
from rankup.core.toml_file import read_toml
from rankup.errors import RankupError
from rankup.scale.families import check_baseline
from rankup.scale.journal import StudyPlan
from rankup.scale.machine import Machine, provenance
from rankup.scale.plan import parse_grid, placeholders_in, points
from rankup.scale.read_run import parse_metric
from rankup.spec.jobspec import JobSpec

# Of a job that is submitted, besides what the grid says: flags of `rankup submit`.
JOB_OPTIONS = (
    *("time", "queue", "account", "mem", "exclusive", "gpu_type", "directives"),
    *("modules", "venv", "container"),
)
# Key of [study] → the type of its value.
_KEYS: dict[str, type] = {
    **dict.fromkeys(("scaling", "baseline", "metric", "site"), str),
    **dict.fromkeys(("repeats", "at_once"), int),
    "command": list,
    **dict.fromkeys(("grid", "training", "job"), dict),
}
_OF_THE_STUDY = ("nodes", "nproc_per_node", "gpus_per_node", "launcher", "name", "command", "array")


def plan_from(context: typer.Context) -> StudyPlan:
    """The study that the command line asks for. Raises RankupError for what is wrong with it."""
    asked = dict(context.params)
    command, grid = list(asked["command"] or ()), list(asked["grid"] or ())
    flags, training = flags_from({**asked, "command": None, "nproc_per_node": None}), training_from(context)
    scaling = "weak" if asked["weak"] else "strong"
    if len(command) == 1 and command[0].endswith(".toml") and (file := read_study(Path(command[0]))):
        # Flags win over the file.
        asked |= {key: value for key, value in file.items() if key in asked and not given(context, key)}
        command = [str(word) for word in file["command"]]
        if not grid and not asked["nproc_per_node"]:
            grid = [f"{key}={_values(value)}" for key, value in file.get("grid", {}).items()]
        training = {**file.get("training", {}), **training}
        flags = {**file.get("job", {}), **flags}
        scaling = scaling if given(context, "weak") else file.get("scaling", "strong")
    if not command:
        hint = "rankup scale mnist-cnn --grid nproc=1,2"
        raise RankupError("nothing-to-measure", "no workload or script is given", hint=hint)
    nproc = asked["nproc_per_node"]
    words = [*grid, *([f"nproc={nproc}"] if nproc else [])] or ["nproc=1,2"]
    parsed = parse_grid(words, placeholders=placeholders_in(command))
    _check_command(command, training)
    if asked["repeats"] < 1:
        message = f"--repeats must be at least 1, got {asked['repeats']}"
        raise RankupError("bad-repeats", message, hint="--repeats 3")
    if asked["metric"]:
        parse_metric(asked["metric"])
    _check_job(flags, asked["site"])
    check_keys(command, parsed, scaling, asked["site"])
    check_baseline(asked["baseline"], points(parsed))
    if not asked["site"]:
        check_processes(parsed, training)
    machine = Machine.here()
    return StudyPlan(
        command=command,
        grid=parsed,
        repeats=asked["repeats"],
        scaling=scaling,
        baseline=asked["baseline"],
        metric=asked["metric"],
        site=asked["site"],
        at_once=asked["at_once"],
        flags=flags if asked["site"] else {**flags, **fair_threads(parsed, flags, training)},
        training=training,
        machine={} if asked["site"] else asdict(machine),
        load=None if asked["site"] else machine.load,
        cwd=str(Path.cwd()),
        allow_unfair=asked["allow_unfair"],
        made=provenance(Path.cwd(), sys.argv[1:]),
    )


def read_study(path: Path) -> dict[str, Any]:
    """The table ``[study]`` of ``path``, checked; {} for a file without one, which may be a training's job.toml."""
    tables = read_toml(path, "study")
    if "study" not in tables:
        return {}
    study = tables["study"]
    if not isinstance(study, dict) or set(tables) - {"study"}:
        raise _bad_file("a study.toml has the table [study] alone", path)
    study = {key.replace("-", "_"): value for key, value in study.items()}
    for key, value in study.items():
        if key not in _KEYS:
            raise _bad_file(f"[study] has no key {key!r}{did_you_mean(key, _KEYS)}", path)
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise _bad_file(f"{key} in [study] is {value!r}, which is not {_WORDS[_KEYS[key]]}", path)
    if not study.get("command"):
        raise _bad_file("[study] requires command", path)
    if study.get("scaling", "strong") not in ("strong", "weak"):
        raise _bad_file(f"scaling is {study['scaling']!r}, and must be strong or weak", path)
    if study.get("at_once", 1) < 1:
        raise _bad_file("at_once must be at least 1", path)
    job = {key.replace("-", "_"): value for key, value in study.get("job", {}).items()}
    for key in job:
        if key not in JobSpec.model_fields or key in _OF_THE_STUDY:
            known = [name for name in JobSpec.model_fields if name not in _OF_THE_STUDY]
            raise _bad_file(f"[study.job] has no key {key!r}{did_you_mean(key, known)}", path)
    for key, values in study.get("grid", {}).items():
        # Text alone is a list as in --grid.
        for one in values if isinstance(values, list) else [values]:
            comma = isinstance(values, list) and "," in str(one)
            if comma or not isinstance(one, str | int | float):
                raise _bad_file(f"{key} in grid is {one!r}, and must be numbers or text without commas", path)
    if wrong := [word for word in study["command"] if not isinstance(word, str | int | float)]:
        raise _bad_file(f"command in [study] holds {wrong[0]!r}, which is not text", path)
    try:
        training = training_from_table(study.get("training", {}))
    except ValueError as error:
        raise _bad_file(f"training in [study]: {error}", path) from None
    return {**study, "job": job, "training": training}


_WORDS = {str: "text", int: "a whole number", list: "a list", dict: "a table"}


def _values(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_command(command: Sequence[str], training: Mapping[str, Any]) -> None:
    if is_workload(command[0]):
        require_torch()
        if len(command) > 1:
            raise RankupError(
                "unexpected-argument",
                f"unexpected argument {command[1]!r}",
                hint=f"rankup scale {command[0]} --help",
            )
    elif training:
        option = "--" + next(iter(training)).replace("_", "-")
        raise RankupError(
            "not-a-workload",
            f"{option} is an option of workloads, and {command[0]} is a script",
            hint=f"options of the script come after it: rankup scale … {command[0]} {option} …",
        )


def _check_job(flags: Mapping[str, Any], site: str) -> None:
    """What only a job has is refused for a study that runs here."""
    found = [key for key in JOB_OPTIONS if key in flags and key not in ("venv",)]
    if found and not site:
        option = {"directives": "--directive", "modules": "--module"}.get(found[0], f"--{found[0]}")
        raise RankupError(
            "no-job",
            f"{option.replace('_', '-')} is an option of jobs, and this study runs here",
            hint="--site NAME submits its runs as jobs; `rankup sites list` shows the names",
        )


def _bad_file(message: str, path: Path) -> RankupError:
    return RankupError(
        "bad-study",
        message,
        context=str(path.absolute()),
        hint='[study] has command = ["mnist-cnn"], grid = {nproc = [1, 2]}, repeats = 3, …',
    )
