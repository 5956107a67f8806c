"""What a Python command line starts: a training program, a launcher of ranks, an installer, or a harmless helper."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from rankup.launch_grammar.launchers import COMMANDS, MODULES, launch_of
from rankup.launch_grammar.reader import Text, read_text

_ASK = frozenset({"-h", "--help", "--version"})
_INSTALLERS = frozenset({"pip", "venv", "virtualenv", "ensurepip", "conda", "uv", "pipx"})
_FRAMEWORKS = (
    "torch|torchvision|lightning|pytorch_lightning|accelerate|deepspeed|transformers|horovod|ray|jax|tensorflow|fairseq|"
    "megatron|composer|timm|diffusers|mpi4py|rankup|idr_torch|submitit|hydra|nemo|ignite|fastai|mmengine|mmcv|detectron2"
)
_IMPORTS = re.compile(
    rf"^[ \t]*(?:from[ \t]+(?:{_FRAMEWORKS})\b|import[ \t]+(?:[\w. ]+,[ \t]*)*(?:{_FRAMEWORKS})\b)", re.M
)
_LOCAL = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([\w, ]+)|import[ \t]+([\w., ]+))", re.M
)
#: Lines of a program from which one sees how it learns its rank.
RANK_LINE = re.compile(
    r"^\s*(import|from)\s|SLURM_|OMPI_|PMI|PALS_|MV2_|PBS_|RANK|WORLD_SIZE|init_process_group|init_distributed|Accelerator|"
    r"init_device_mesh|DataParallel|spawn|start_processes|notebook_launcher|HfArgumentParser|TrainingArguments|hostlist"
)


@dataclass(frozen=True)
class Program:
    """``kind``: training, launcher, probe (a line of Python that imports torch), installer, helper."""

    kind: str
    launcher: str = ""  # torchrun, launch, accelerate, deepspeed, horovodrun
    target: str = ""  # the script as it was written, or the module
    is_module: bool = False
    path: str = ""  # of the script's file, if there is one
    missing: bool = False
    arguments: tuple[str, ...] = ()
    why: str = ""


def program_of(args: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str | None = None) -> Program:
    """What ``python ARGS`` starts. ``stdin`` is the text that it would read as its program."""
    line = read_text("python", args)
    if "m" in line.options:
        return _module(line.options["m"], line.rest, cwd, env)
    if "c" in line.options:
        return _code(line.options["c"])
    if line.rest[:1] == ("-",):
        return _code(stdin or "")
    if line.rest:
        return script(line.rest[0], line.rest[1:], cwd, env)
    return _code(stdin) if stdin is not None and not args else Program("helper", why="only options of Python")


def _code(text: str) -> Program:
    return Program("probe" if _IMPORTS.search(text.replace(";", "\n")) else "helper")


def _module(name: str, args: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> Program:
    if name in MODULES:
        return _launcher(MODULES, name, args)
    if name.partition(".")[0] in _INSTALLERS:
        return Program("installer", target=name, is_module=True, arguments=args)
    for folder in (cwd, *_pythonpath(env, cwd)):
        base = folder.joinpath(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__main__.py"):
            if path.is_file():
                kind = "training" if imports_torch(path, cwd) else "helper"
                return Program(kind, target=name, is_module=True, path=str(path), arguments=args)
    top = name.partition(".")[0]
    if re.fullmatch(_FRAMEWORKS, top) and name not in ("rankup", "rankup.monitor"):  # tools
        return Program("training", target=name, is_module=True, arguments=args)
    return Program("module", target=name, is_module=True, arguments=args)


def script(name: str, args: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> Program:
    path = Path(cwd, name)
    if path.name in COMMANDS and not path.name.endswith(".py"):
        return _launcher(COMMANDS, path.name, args)
    if path.name in ("pip", "pip3"):
        return Program("installer", target=path.name, arguments=args)
    if path.is_dir():
        path = path / "__main__.py"
    if not path.is_file():
        return Program("training", target=name, path=str(path), missing=True, arguments=args)
    kind = "training" if imports_torch(path, cwd) else "helper"
    return Program(kind, target=name, path=str(path), arguments=args)


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _launcher(names: Mapping[str, tuple[str, ...]], name: str, args: Sequence[str]) -> Program:
    launch = launch_of(names, name, [Text(word) for word in args])
    # accelerate config, accelerate env, torchrun --help
    if launch is None or any(word in _ASK for word in takewhile(_is_option, args)):
        return Program("probe", names[name][0], arguments=tuple(args))
    return Program("launcher", launch[0], arguments=tuple(launch[1]))


def launcher(name: str, args: Sequence[str]) -> Program:
    """The program of a launcher's own command: ``torchrun``, ``accelerate``, …"""
    return _launcher(COMMANDS, name, args)


def imports_torch(path: Path, cwd: Path, depth: int = 3) -> bool:
    """Whether a program, or a module beside it that it imports, imports torch or a training framework."""
    return any(_IMPORTS.search(text) for _, text in sources(path, cwd, depth))


def sources(path: Path, cwd: Path, depth: int = 3) -> Iterator[tuple[Path, str]]:
    """The text of a program, and of the modules beside it that it imports."""
    todo, seen = [(path, depth)], {path}
    while todo and len(seen) < 60:
        file, left = todo.pop(0)
        try:
            text = file.read_text(encoding="utf-8", errors="replace")[: 1 << 20]
        except OSError:
            continue
        yield file, text
        if not left:
            continue
        for found in _local_modules(text, file, (path.parent, cwd)):
            if found not in seen:
                seen.add(found)
                todo.append((found, left - 1))


def _local_modules(text: str, file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    for match in _LOCAL.finditer(text):
        if match[3]:
            names = [one.split()[0] for one in match[3].split(",") if one.strip()]
        else:
            names = [
                match[1],
                *(f"{match[1]}.{one.split()[0]}" for one in match[2].split(",") if one.strip()),
            ]
        for name in names:
            dots = len(name) - len(name.lstrip("."))
            parts = [part for part in name.split(".") if part]
            if not parts:
                continue
            for folder in [file.parents[dots - 1]] if dots and dots <= len(file.parents) else folders:
                base = folder.joinpath(*parts)
                for path in (base.with_suffix(".py"), base / "__init__.py"):
                    if path.is_file():
                        yield path


def _pythonpath(env: Mapping[str, str], cwd: Path) -> list[Path]:
    return [cwd / one for one in env.get("PYTHONPATH", "").split(os.pathsep) if one]
