"""``apptainer``, ``docker`` and their like: what would run inside of the container runs here, noted."""

from __future__ import annotations

import os
from pathlib import Path

from rankup.launch_grammar.reader import CommandLine, Text, read_text
from rankup.rehearse.stand_ins.context import Here

#: They have no subcommand, and know the image otherwise (ch-run's is the first word).
_OWN_RUN = ("shifter", "ch-run")
_CLEAN = {"cleanenv", "containall"}
# Options as variables; and LUMI's modules bind what GPUs need (singularity-AI-bindings and the like).
_GPU_VARIABLES = tuple(
    f"{of}_{name}" for of in ("APPTAINER", "SINGULARITY") for name in ("NV", "ROCM", "NVCCLI")
)
_GPU_MODULES = "bindings"
_KEPT = ("PATH", "HOME", "BASH_ENV", "PYTHONPATH", "RANKUP_REHEARSE")


def main(here: Here) -> int:
    rest = list(here.args)
    apptainer = here.name in ("apptainer", "singularity")
    subcommand = "run"
    if here.name not in _OWN_RUN:
        while rest and rest[0].startswith("-"):
            rest.pop(0)
        subcommand = rest.pop(0) if rest else ""
        if subcommand not in ("exec", "run", "start", "shell"):
            here.note(f"{' '.join([here.name, *here.args])[:160]}: noted, not done")
            return 0
    line = read_text(here.name, rest)
    rest = list(line.rest)
    image = "" if here.name in _OWN_RUN else (rest.pop(0) if rest else "")
    if here.name == "ch-run" and rest:
        image = rest.pop(0)
    if apptainer and image and rest[:1] and rest[0].startswith("-") and not _is_image(image):
        # exec $IMAGE python -u train.py, where a module sets IMAGE: the first word is the program
        here.note(
            f"{here.name} {subcommand}: the image's name is empty; a module that sets nothing here may set it"
        )
        rest, image = [image, *rest], "(unknown)"
    if rest[:1] == ["--"]:
        rest.pop(0)
    given = {"nv", "rocm", "nvccli"} & line.options.keys() or any(map(here.env.get, _GPU_VARIABLES))
    if (
        apptainer
        and any(here.job.gpus)
        and not given
        and _GPU_MODULES not in here.env.get("LOADEDMODULES", "")
    ):
        here.note(
            f"{here.name} {subcommand} {image} has neither --nv nor --rocm: no GPU inside, unless the site adds it",
            "no-gpu",
        )
    if not rest or subcommand == "shell":
        here.note(f"{here.name} {subcommand} {image}: what the image runs by itself is not known", "unknown")
        return 0
    here.note(f"{here.name} {subcommand} {image}: what follows runs without the container", "container")
    _environment(here, line, apptainer)
    folder = line.options.get("folder", "")
    if folder and Path(folder).is_dir():
        os.chdir(folder)
    # What the image has, and what runs before it there may be given it as an argument.
    known = {word for word in rest[1:] if Path(here.scenario.bin, Path(word).name).exists()}
    command = [_here(word) if word in known or word is rest[0] else word for word in rest]
    try:
        os.execvpe(command[0], command, here.env)
    except OSError as error:
        here.note(f"{here.name}: {command[0]} is in the image alone: not run", "unknown")
        here.fail(f"{here.name}: {command[0]}: {error.strerror}", 0)


def _here(word: str) -> str:
    """A command, as it can be called outside of the image."""
    return Path(word).name if word.startswith("/") and not Path(word).exists() else word


def _is_image(word: str) -> bool:
    return "/" in word or "." in word or "://" in word or Path(word).exists()


def _environment(here: Here, line: CommandLine[Text], apptainer: bool) -> None:
    given = [one.value for one in line.given if one.option.meaning == "env"]
    clean = sorted(_CLEAN & line.options.keys())
    if apptainer and clean:
        keep = (*_KEPT, "USER", "LANG", "TERM", "APPTAINERENV_", "SINGULARITYENV_")
        here.env = {name: value for name, value in here.env.items() if name.startswith(keep)}
        here.note(
            f"{here.name} {' '.join(f'--{name}' for name in clean)}: the job's variables do not enter the container"
        )
    elif not apptainer and here.name in ("docker", "podman", "podman-hpc"):
        inside = {name: value for name, value in here.env.items() if name.startswith(_KEPT)}
        outside, here.env = here.env, inside
        for key, equals, text in (pair.partition("=") for pair in given):
            here.env[key] = text if equals else outside.get(key, "")
    if apptainer:
        for name, value in list(here.env.items()):
            for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
                if name.startswith(prefix) and name != prefix:
                    here.env[name.removeprefix(prefix)] = value
        pairs = (pair.partition("=") for pair in ",".join(given).split(","))
        here.env |= {key: text for key, equals, text in pairs if equals}
