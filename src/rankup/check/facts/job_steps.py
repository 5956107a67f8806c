"""Node launchers: how many tasks a command line starts on how many nodes, and of what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.check.facts.job_commands import Value
from rankup.check.facts.job_options import Parsed, grammar, parse
from rankup.check.facts.job_request import Request
from rankup.check.facts.job_source import joined

_SRUN_SHORT = {
    "-A": "account", "-c": "cpus-per-task", "-d": "dependency", "-D": "chdir", "-e": "error", "-G": "gpus",
    "-i": "input", "-J": "job-name", "-m": "distribution", "-N": "nodes", "-n": "ntasks", "-o": "output",
    "-p": "partition", "-q": "qos", "-r": "relative", "-t": "time", "-T": "threads", "-w": "nodelist", "-W": "wait",
    "-x": "exclude", "-C": "constraint", "-B": "extra-node-info", "-b": "begin", "-M": "clusters", "-L": "licenses",
    "-S": "core-spec", "--tasks-per-node": "ntasks-per-node",
}  # fmt: skip
_FLAGS = (
    "-E -H -K -k -l -O -Q -s -u -v -vv -vvv -V -X -Z -I --exclusive --label --unbuffered --overlap "
    "--overcommit --pty --preserve-env --kill-on-bad-exit --no-kill --quiet --verbose --oversubscribe "
    "--share --multi-prog --exact --whole --immediate --disable-status --requeue --no-requeue "
    "--spread-job --use-min-nodes --test-only --contiguous --no-allocate --reboot --hold "
    "--container-readonly --container-writable --no-container-remap-root --container-remap-root "
    "--container-mount-home --no-container-mount-home --no-container-entrypoint --container-entrypoint "
    "--propagate --get-user-env --nice --no-shell --interactive --resv-ports --send-libs --treewidth "
    "--debugger-test --x11 --version --help --ignore-pbs --mem-bind-v"
)
_SRUN_FLAGS = frozenset(_FLAGS.split())
_SRUN = grammar(
    " ".join(option for option in _SRUN_SHORT if len(option) == 2),
    {**_SRUN_SHORT},
    glued=" ".join(option for option in _SRUN_SHORT if len(option) == 2),
    flags=_SRUN_FLAGS,
)
_MPI_VALUES = (
    "-n -np -c -N -ppn -npernode -x -H -host -hosts -hostfile -machinefile -f -wdir -wd -path -prefix -d "
    "-depth -cc -cpu-bind -mem-bind -gpu-bind -bind-to -map-by -rank-by -genvlist -envlist -rmk "
    "-bootstrap -iface -hostlist -bootstrap-exec -launcher -launcher-exec -app -tune -output-filename "
    "-stdin -timeout -perhost -pmi -rf -rankfile -cpu-list -cpu-set -tasks-per-node -ranks-per-node -e -E"
)
_MPI = grammar(
    " ".join([*_MPI_VALUES.split(), *("-" + option for option in _MPI_VALUES.split()), "--mca", "-mca", "--pmixmca",
              "--prtemca", "-genv", "--genv", "-env", "--env", "--gmca", "-gmca"]),
    {
        **{dash + name: "np" for name in ("n", "np") for dash in ("-", "--")},
        **{dash + name: "ppn" for name in ("ppn", "npernode", "N", "perhost", "ranks-per-node", "tasks-per-node")
           for dash in ("-", "--")},
        **{dash + name: "hosts" for name in ("H", "host", "hosts") for dash in ("-", "--")},
        **{dash + name: "hostfile" for name in ("hostfile", "machinefile", "f") for dash in ("-", "--")},
    },
    many=dict.fromkeys(("-mca", "--mca", "--pmixmca", "--prtemca", "-genv", "--genv", "-env", "--gmca", "-gmca"), 2),
)  # fmt: skip
_SSH = grammar("-o -i -p -l -F -J -L -R -D -b -c -e -E -I -m -O -Q -S -w -W -B", {})
_PBSDSH = grammar("-n -h -c", {"-n": "index", "-h": "host", "-c": "copies"})
_PDSH = grammar("-w -x -g -G -X -l -f -R -t -u -p --worker", {})
_JSRUN = grammar("-n -a -c -g -r -p -b -d -l -e -E -o -k -t -X -M -U -i -P --nrs --tasks_per_rs --cpu_per_rs "
                 "--gpu_per_rs --rs_per_host --np --bind --launch_distribution --smpiargs", {})  # fmt: skip
_APRUN = grammar("-n -N -d -j -cc -e -S -L -m -r -p -D -a", {})
_BLAUNCH = grammar("-u -z -e -o", {})
_OTHER = grammar("-n -N -c -p -A -t", {})

MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "mpirun_rsh", "mpirun.openmpi"})
#: Centres' own wrappers and other schedulers' launchers: they reach nodes, and nobody knows how many.
OTHER = frozenset(
    {"ibrun", "ccc_mprun", "flux", "poe", "yod", "mprun", "launch", "rsrun", "prrte", "parallel"}
)
KINDS = (
    MPI | OTHER | {"srun", "pbsdsh", "pbs_tmrsh", "ssh", "pdsh", "clush", "blaunch", "jsrun", "lrun", "aprun"}
)


@dataclass(frozen=True)
class Fanout:
    """What a node launcher's command line says."""

    kind: str
    parsed: Parsed
    argv: tuple[Value, ...]
    text: Value | None = None  # what a remote shell reads
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None


def fan_out(name: str, argv: Sequence[Value], request: Request) -> Fanout | None:
    """What a node launcher starts; None if the command is not one, or starts nothing."""
    if name not in KINDS:
        return None
    words = argv[1:]
    if name == "srun":
        parsed = parse(words, _SRUN)
        return Fanout("srun", parsed, parsed.rest, None, *_srun_size(parsed, request))
    if name in MPI:
        parsed = parse(words, _MPI)
        kind = "mpirun" if name in ("mpirun", "orterun", "mpirun.openmpi") else "mpiexec"
        return Fanout(kind, parsed, parsed.rest, None, *_mpi_size(parsed, request))
    if name == "ssh":
        parsed = parse(words, _SSH)
        rest = parse(parsed.rest[1:], _SSH).rest  # options may follow the host
        return Fanout("ssh", parsed, rest, joined(rest) if rest else None, 1, 1, 1)
    if name in ("pbsdsh", "pbs_tmrsh"):
        return _pbs(name, words, request)
    if name in ("pdsh", "clush"):
        parsed = parse(words, _PDSH)
        return Fanout("pdsh", parsed, parsed.rest, joined(parsed.rest), request.nodes, request.nodes, 1)
    if name in ("jsrun", "lrun"):
        parsed = parse(words, _JSRUN)
    elif name == "aprun":
        parsed = parse(words, _APRUN)
        tasks, per_node = _number(parsed, request, "n"), _number(parsed, request, "N")
        nodes = tasks // per_node if tasks and per_node else None
        return Fanout("aprun", parsed, parsed.rest, None, nodes, tasks, per_node)
    elif name == "blaunch":
        parsed = parse(words, _BLAUNCH)
        rest = parsed.rest if "z" in parsed.options or "u" in parsed.options else parsed.rest[1:]
        return Fanout("blaunch", parsed, rest)
    else:
        rest_words = words[1:] if name == "flux" else words
        parsed = parse(rest_words, _OTHER)
    return Fanout(name, parsed, parsed.rest)


def _pbs(name: str, words: Sequence[Value], request: Request) -> Fanout:
    parsed = parse(words, _PBSDSH)
    if name == "pbs_tmrsh":
        return Fanout(name, parsed, parsed.rest[1:], None, 1, 1, 1)
    if parsed.options.keys() & {"index", "host", "o"}:
        return Fanout(name, parsed, parsed.rest, None, 1, 1, 1)
    if "u" in parsed.options:  # Torque: once on each node
        return Fanout(name, parsed, parsed.rest, None, request.nodes, request.nodes, 1)
    per_node = request.lines_per_node
    tasks = request.nodes * per_node if request.nodes and per_node else None
    return Fanout(name, parsed, parsed.rest, None, request.nodes, tasks, per_node)


def _number(parsed: Parsed, request: Request, name: str) -> int | None:
    value = parsed.options.get(name)
    return value.number(request.number) if value is not None else None


def _srun_size(parsed: Parsed, request: Request) -> tuple[int | None, int | None, int | None]:
    """Nodes, tasks and tasks per node of a step: srun's own options win over the job's."""
    options = parsed.options
    ntasks, nodes = _number(parsed, request, "ntasks"), _number(parsed, request, "nodes")
    per_node = _number(parsed, request, "ntasks-per-node")
    given = {name for name in ("ntasks", "nodes", "ntasks-per-node") if name in options}
    if request.heterogeneous or "het-group" in options or "pack-group" in options or "multi-prog" in options:
        return None, None, None
    if "nodelist" in options and "nodes" not in given:
        value = options["nodelist"].known
        nodes = 1 if value is None or "," not in value else None
        if "ntasks" not in given:
            return nodes, None, per_node
    if not given:
        return request.nodes, request.tasks, request.tasks_per_node
    if "ntasks" in given:
        if ntasks is None:
            return nodes, None, per_node
        if "nodes" not in given:
            nodes = nodes or (min(request.nodes, ntasks) if request.nodes else None)
        if per_node is None and nodes and ntasks % nodes == 0:
            per_node = ntasks // nodes
        return nodes, ntasks, per_node
    if "nodes" not in given:
        nodes = request.nodes
    if "ntasks-per-node" in given:
        return nodes, nodes * per_node if nodes and per_node else None, per_node
    # Only --nodes: the job's tasks, if they fit to it.
    if nodes is not None and nodes == request.nodes:
        return nodes, request.tasks, request.tasks_per_node
    if request.tasks_given:
        return nodes, None, None
    return nodes, nodes, 1


def _mpi_size(parsed: Parsed, request: Request) -> tuple[int | None, int | None, int | None]:
    tasks, per_node = _number(parsed, request, "np"), _number(parsed, request, "ppn")
    mapping = parsed.options.get("map-by")
    match = re.match(r"ppr:(\d+):node", mapping.head) if mapping is not None else None
    if match:
        per_node = int(match.group(1))
    if tasks is not None:
        if per_node:
            return -(-tasks // per_node), tasks, per_node
        if tasks == 1:
            return 1, 1, 1
        return None, tasks, None
    if "np" in parsed.options:
        return None, None, per_node
    nodes = request.nodes if per_node else None
    return nodes, nodes * per_node if nodes and per_node else None, per_node
