"""``pbsdsh``, ``pbs_tmrsh``, ``ssh``, ``pdsh``: commands on other hosts, with the little environment that they give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankup.core.hostlist import expand
from rankup.errors import RankupError
from rankup.launch_grammar.reader import read_text
from rankup.rehearse import pbs_env
from rankup.rehearse.stand_ins.context import Here
from rankup.rehearse.stand_ins.tasks import Task, given_input, run_all


def main(here: Here) -> int:
    kinds = {"pbsdsh": _pbsdsh, "pbs_tmrsh": _pbs_tmrsh, "pdsh": _pdsh, "clush": _pdsh}
    return kinds.get(here.name, _ssh)(here)


def _launch(here: Here, tasks: list[Task], stdin: str | None = None, *, report: bool = False) -> list[int]:
    group = here.launch(launcher=here.name, hosts=[task.host for task in tasks])
    codes: list[int] = []

    def ends(number: int, code: int) -> None:
        codes.append(code)
        if report and code:
            print(f"pbsdsh: task 0x{number:08x} exit status {code}", flush=True)

    run_all(here, tasks, group, stdin, ends)
    return codes


def _pbsdsh(here: Here) -> int:
    """One copy for each line of the node file; 0 whatever the tasks do."""
    line = read_text("pbsdsh", here.args)
    options, rest = line.options, line.rest
    torque = here.job.scheduler == "torque"
    wrong = [*line.unknown, *(one.spelling for one in line.given if not torque and one.option.by == "torque")]
    if wrong:
        return _refused(here, f"pbsdsh has no option {', '.join(wrong)}")
    for name in ("index", "copies"):
        if name in options and not options[name].isdigit():
            return _refused(here, f"pbsdsh needs a number, and is given {options[name]!r}")
    if not rest:
        return _refused(here, "no command is given")
    lines = [
        host for host, count in zip(here.job.hosts, here.job.mpiprocs, strict=True) for _ in range(count)
    ]
    if "u" in options:
        lines = list(here.job.hosts)
    if "host" in options:
        lines = [host for host in here.job.hosts if host == options["host"]]
    numbers = list(range(len(lines)))
    if "index" in options:
        numbers = [int(options["index"]) % max(1, len(lines))]
    elif "copies" in options:
        numbers = [number % len(lines) for number in range(int(options["copies"]))]
    tasks = [_of_pbs(here, lines[number], rest, number + 2) for number in numbers]
    _launch(here, tasks, report=True)
    return 0


def _pbs_tmrsh(here: Here) -> int:
    rest = read_text("pbs_tmrsh", here.args).rest
    if len(rest) < 2:
        return _refused(here, "pbs_tmrsh needs a host and a command")
    host = rest[0]
    if host not in here.job.hosts:
        return _refused(here, f"{host} is not a host of this job", 254)
    return _launch(here, [_of_pbs(here, host, rest[1:], 2)])[0]


def _ssh(here: Here) -> int:
    line = read_text("ssh", here.args)
    user_host = next(iter(line.rest), "")
    after = read_text("ssh", line.rest[1:])  # options may follow the host
    rest, no_input = after.rest, bool({"n", "f"} & {*line.options, *after.options})
    host = _resolve(here, user_host.rpartition("@")[2])
    if host is None:
        return _refused(here, f"{user_host or '(nothing)'} is not a host of this job", 255)
    if not rest:
        return _refused(here, f"ssh {user_host} opens a shell and waits for input", 255)
    stdin = None if no_input else given_input(here)
    if stdin and _are_hosts(here, Path(stdin).read_text(errors="replace")):
        here.note(
            f"{here.name} {user_host} reads the script's standard input: the loop that reads hosts "
            "ends after its first round; use ssh -n", "takes-input",
        )  # fmt: skip
    return _launch(here, [_by_login(here, host, rest)], stdin)[0]


def _pdsh(here: Here) -> int:
    line = read_text(here.name, here.args)
    rest = line.rest
    hosts = ",".join(here.job.hosts) if {"a", "all"} & line.options.keys() else line.options.get("w", "")
    try:
        names = expand(hosts)
    except RankupError as error:
        return _refused(here, error.message)
    unknown = [name for name in names if _resolve(here, name) is None]
    if unknown or not names or not rest:
        return _refused(here, f"{', '.join(unknown) or 'nothing'} is not a host of this job")
    _launch(here, [_by_login(here, _resolve(here, name) or name, rest, f"{name}: ") for name in names])
    return 0


def _of_pbs(here: Here, host: str, argv: Sequence[str], number: int) -> Task:
    env = pbs_env.task_environment(here.scenario, here.env, host, number)
    return Task(host, argv, env, here.scenario.home)


def _by_login(here: Here, host: str, words: Sequence[str], label: str = "") -> Task:
    """A new login: it has neither the job's variables nor what the script exports."""
    env = {
        "PATH": f"{here.scenario.bin}:/usr/local/bin:/usr/bin:/bin", "HOME": here.scenario.home,
        "USER": here.scenario.user,
        "LOGNAME": here.scenario.user, "SHELL": "/bin/bash", "LANG": here.env.get("LANG", "C.UTF-8"),
        "SSH_CONNECTION": f"{here.job.address(here.host)} 40000 {here.job.address(here.host)} 22",
    }  # fmt: skip
    return Task(host, ["/bin/bash", "-c", " ".join(words)], env, here.scenario.home, label)


def _resolve(here: Here, name: str) -> str | None:
    if name in ("localhost", "127.0.0.1"):
        return here.host
    for host in here.job.hosts:
        if name in (host, here.job.address(host)) or (
            name and name.partition(".")[0] == host.partition(".")[0]
        ):
            return str(host)
    return None


def _are_hosts(here: Here, text: str) -> bool:
    lines = text.split()
    return bool(lines) and all(_resolve(here, line) for line in lines)


def _refused(here: Here, why: str, code: int = 1) -> int:
    here.note(f"{' '.join([here.name, *here.args])[:200]}: {why}", "bad-command")
    here.complain(f"{here.name}: {why}")
    return code
