"""``apptainer``, ``docker`` and their like: what would run inside of the container runs here, noted."""

from __future__ import annotations

import os
from pathlib import Path

from rankup.rehearse.stand_ins.context import Here

#: Name → (subcommands that run something, options with a value)
_APPTAINER_VALUES = frozenset(
    ["-B", "--bind", "-H", "--home", "-W", "--workdir", "--pwd", "--cwd", "--env", "--env-file", "--overlay",
    "-o", "--mount", "--network", "--security", "--scratch", "-S", "--app", "--add-caps", "--drop-caps",
    "--apply-cgroups", "--dns", "--hostname", "--fusemount", "--network-args", "--cpus", "--memory",
    "--blkio-weight", "--pid-file"]
)  # fmt: skip
_DOCKER_VALUES = frozenset(
    ["-v", "--volume", "-e", "--env", "--env-file", "--name", "--gpus", "--shm-size", "--ipc", "--net",
    "--network", "--pid", "-u", "--user", "-w", "--workdir", "--ulimit", "--device", "--cap-add", "--cpus",
    "-m", "--memory", "-p", "--publish", "--entrypoint", "--label", "-l", "--runtime", "--mount", "-h",
    "--hostname", "--security-opt", "--userns"]
)  # fmt: skip
_OTHER_VALUES = frozenset(
    [
        "--image",
        "-V",
        "--volume",
        "--module",
        "--env",
        "-m",
        "--mount",
        "-e",
        "--rc",
        "--conf",
        "-c",
        "--root",
        "--rw",
        "--workdir",
        "-w",
        "--set-env",
        "-b",
        "--bind",
        "--cd",
    ]
)
_OWN_RUN = {"shifter": _OTHER_VALUES, "ch-run": _OTHER_VALUES}
_CLEAN = {"-e", "--cleanenv", "-C", "--containall"}
_KEPT = ("PATH", "HOME", "BASH_ENV", "PYTHONPATH", "RANKUP_REHEARSE")


def main(here: Here) -> int:
    rest, options = list(here.args), list[tuple[str, str]]()
    apptainer = here.name in ("apptainer", "singularity")
    subcommand = "run"
    if here.name not in _OWN_RUN:
        while rest and rest[0].startswith("-"):
            rest.pop(0)
        subcommand = rest.pop(0) if rest else ""
        if subcommand not in ("exec", "run", "start", "shell"):
            here.note(f"{' '.join([here.name, *here.args])[:160]}: noted, not done")
            return 0
    values = _OWN_RUN.get(here.name) or (_APPTAINER_VALUES if apptainer else _DOCKER_VALUES)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            break
        if not equals and name in values and rest:
            value = rest.pop(0)
        options.append((name, value))
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
    names = [name for name, _ in options]
    if apptainer and any(here.job.gpus) and not {"--nv", "--rocm", "--nvccli"} & {*names}:
        here.note(
            f"{here.name} {subcommand} {image} has neither --nv nor --rocm: no GPU inside, unless the site adds it",
            "no-gpu",
        )
    if not rest or subcommand == "shell":
        here.note(f"{here.name} {subcommand} {image}: what the image runs by itself is not known", "unknown")
        return 0
    here.note(f"{here.name} {subcommand} {image}: what follows runs without the container", "container")
    _environment(here, options, apptainer)
    folder = next(
        (value for name, value in options if name in ("--pwd", "--cwd", "-w", "--workdir", "--cd")), ""
    )
    if folder and Path(folder).is_dir():
        os.chdir(folder)
    command = rest
    if command[0].startswith("/") and not Path(command[0]).exists():
        command = [Path(command[0]).name, *command[1:]]
    try:
        os.execvpe(command[0], command, here.env)
    except OSError as error:
        here.note(f"{here.name}: {command[0]} is in the image alone: not run", "unknown")
        here.fail(f"{here.name}: {command[0]}: {error.strerror}", 0)


def _is_image(word: str) -> bool:
    return "/" in word or "." in word or "://" in word or Path(word).exists()


def _environment(here: Here, options: list[tuple[str, str]], apptainer: bool) -> None:
    names = {name for name, _ in options}
    if apptainer and _CLEAN & names:
        keep = (*_KEPT, "USER", "LANG", "TERM", "APPTAINERENV_", "SINGULARITYENV_")
        here.env = {name: value for name, value in here.env.items() if name.startswith(keep)}
        here.note(f"{here.name} {' '.join(_CLEAN & names)}: the job's variables do not enter the container")
    elif not apptainer and here.name in ("docker", "podman", "podman-hpc"):
        inside = {name: value for name, value in here.env.items() if name.startswith(_KEPT)}
        outside, here.env = here.env, inside
        for name, value in options:
            if name in ("-e", "--env"):
                key, equals, text = value.partition("=")
                here.env[key] = text if equals else outside.get(key, "")
    if apptainer:
        for name, value in list(here.env.items()):
            for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
                if name.startswith(prefix) and name != prefix:
                    here.env[name.removeprefix(prefix)] = value
        for name, value in options:
            if name == "--env":
                for one in value.split(","):
                    key, _, text = one.partition("=")
                    here.env[key] = text
