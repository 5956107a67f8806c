"""``python``, ``torchrun`` and their like: a training is recorded and not run; a harmless helper runs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rankup.launch_grammar.launchers import COMMANDS
from rankup.rehearse.launch_options import agent_of, text_of
from rankup.rehearse.programs import RANK_LINE, Program, imports_torch, launcher, program_of, script, sources
from rankup.rehearse.stand_ins.context import PASS, Here
from rankup.rehearse.stand_ins.holding import wait_until_quiet

#: Variables by which ranks find each other and their devices; what else a job has is not recorded.
_PREFIXES = (
    "SLURM", "PBS_", "PALS_", "PMI", "OMPI_", "MPI_", "MV2_", "PRTE", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_",
    "NODE_RANK",
    "GROUP_", "CUDA_", "ROCR_", "HIP_", "ZE_", "NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_",
    "TORCH", "PET_",
    "NPROC", "NNODES", "WORLD", "HOSTNAME", "HEAD", "ADDR", "PORT", "ACCELERATE_", "DEEPSPEED", "HOROVOD_",
    "APPTAINERENV_",
    "SINGULARITYENV_", "CROSS_", "DS_", "NUM_", "JAX_", "RDZV", "LD_LIBRARY_PATH", "PYTHONPATH", "PATH",
    "TMPDIR", "HF_",
)  # fmt: skip
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")
PYTHON = "RANKUP_REHEARSE_PYTHON"  # the Python that the hook has caught, by its path


def main(here: Here) -> int:  # noqa: RET503 # the last line does not return
    if here.name in COMMANDS:
        program = launcher(here.name, here.args)
    else:
        stdin = _program_on_stdin() if here.args[:1] == ["-"] or not here.args else None
        program = program_of(here.args, here.cwd, here.env, stdin)
    if program.kind == "module":
        program = _installed_module(here, program)
    if program.kind == "installer":
        here.note(
            f"{' '.join([here.name, *here.args])}: installs packages or makes an environment; noted, not done"
        )
        return 0
    if here.args[:3] == ["-m", "rankup", "verify"] or here.args[:2] == ["-m", "rankup.core.goodput"]:
        return 0  # a job's proof trains on its node, and its last line tells of a real run
    if program.kind in ("training", "launcher"):
        if here.scenario.for_real and here.env.get("TORCHELASTIC_RUN_ID"):
            _train(here)  # a worker of an agent that is recorded
        _record(here, program)
        if here.scenario.for_real:
            _train(here)
        if here.background:
            wait_until_quiet(here)
        return 0
    if program.kind == "probe" and program.launcher:
        here.note(f"{' '.join([here.name, *here.args])}: noted, not done")
        return 0
    if program.kind == "probe":
        # torch may not be here, and sees no GPU here: a stand-in tells it what the job's nodes have.
        stubs = here.scenario.scratch / "stubs"
        here.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(stubs), here.env.get("PYTHONPATH", "")]))
        here.env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(here.gpus))))
        here.record("probe", argv=[here.name, *here.args])
    _become_python(here)


def _record(here: Here, program: Program) -> None:
    hosts = list(here.job.hosts)
    here.record(
        "program",
        pid=os.getpid(),
        argv=[here.name, *here.args],
        program=_with_target(program, here),
        text=_text(program, here),
        file=_file_read(program, here),
        environment=environment_of(here.env),
        node=hosts.index(here.host) if here.host in hosts else None,
        background=here.background,
    )


def _with_target(program: Program, here: Here) -> dict[str, Any]:
    """The program; of a launcher, whether the program that it starts is there."""
    values = dict(vars(program))
    target = _target(program, here)
    if program.kind == "launcher" and target is not None:
        values |= {"target": target.target, "path": target.path, "missing": target.missing}
    return values


def _file_read(program: Program, here: Here) -> str | None:
    """The configuration or host file that a launcher reads: one that the job writes is gone after the rehearsal."""
    found: list[str | None] = []

    def read(path: Path) -> str | None:
        found.append(text_of(path))
        return found[-1]

    if program.kind == "launcher":
        agent_of(program.launcher, program.arguments, here.env, here.cwd, read=read)
    return next(iter(found), None)


def _target(program: Program, here: Here) -> Program | None:
    if program.kind != "launcher":
        return program
    agent = agent_of(program.launcher, program.arguments, here.env, here.cwd)
    if not agent.command:
        return Program("training", missing=True)
    if agent.is_module or not agent.target:
        return None
    return script(agent.target, (), here.cwd, here.env)


def _text(program: Program, here: Here) -> str:
    """What the program and the modules beside it say about ranks: the lines that a judgement may look at."""
    target = _target(program, here)
    if target is None or not target.path or target.missing:
        return ""
    lines = [
        line[:200]
        for _, text in sources(Path(target.path), here.cwd)
        for line in text.splitlines()
        if RANK_LINE.search(line)
    ]
    return "\n".join(["# program", *lines])[:20000]


def _installed_module(here: Here, program: Program) -> Program:
    """A module that is not in the folder: part of Python, of an installed package, or not here at all."""
    top = program.target.partition(".")[0]
    if top in sys.stdlib_module_names:
        return Program("helper")
    import importlib.machinery

    found = importlib.machinery.PathFinder.find_spec(
        top, [p for p in here.env.get("PYTHONPATH", "").split(":") if p]
    )
    if found is not None and found.origin and not imports_torch(Path(found.origin), here.cwd):
        return Program("helper")
    if top == "rankup":
        return Program("helper")
    return Program("training", target=program.target, is_module=True, arguments=program.arguments)


def _program_on_stdin() -> str | None:
    """A program's text that comes by standard input, which is put back for the real Python."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    data = sys.stdin.buffer.read(1 << 22)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)
    return data.decode(errors="replace")


def _train(here: Here) -> NoReturn:
    """Run the program on this machine's CPUs: gloo instead of NCCL, over the loopback device."""
    here.env |= {"RANKUP_REHEARSE_GLOO": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    _become_python(here)


def _become_python(here: Here) -> NoReturn:
    env = {**here.env, PASS: str(os.getpid())}
    caught = env.pop(PYTHON, "")
    path = caught or here.real(here.name) or here.real("python3")
    if path is None:
        path = here.scenario.python
    if not caught and here.name in COMMANDS and here.real(here.name) is None:
        here.fail(f"{here.name}: command not found", 127)
    os.execve(path, [path, *here.args], env)


def environment_of(env: Mapping[str, str]) -> dict[str, str]:
    """The variables by which ranks find each other and their devices; neither ours nor secrets."""
    kept = {
        name: value
        for name, value in env.items()
        if name.startswith(_PREFIXES)
        and not name.startswith("RANKUP_REHEARSE")
        and not any(word in name.upper() for word in _SECRETS)
    }
    for name in ("PYTHONPATH", "PATH"):
        parts = [one for one in kept.get(name, "").split(os.pathsep) if one and "rankup-rehearse-" not in one]
        kept.pop(name, None)
        if parts:
            kept[name] = os.pathsep.join(parts)
    return kept
