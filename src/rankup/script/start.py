"""The part of a job's script that starts the ranks, and what runs beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from rankup.core.registry import lookup
from rankup.launchers import SCRIPTED
from rankup.launchers.base import ScriptLauncher, Start, expanded_code
from rankup.node_launchers.agents import by_scancel, by_signal, choose, node_launcher
from rankup.node_launchers.base import Agents, AgentsScript
from rankup.script.containers import Entry, enter
from rankup.script.environment import PREFIX, variables
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


def meets(spec: JobSpec) -> bool:
    """Whether the ranks need an address to meet at; torchrun on one node finds its own.

    A lone process may be a script that was written for several, and asks for an address all the same.
    """
    return spec.nodes > 1 or spec.launcher in ("srun", "mpirun") or _alone(spec)


def _alone(spec: JobSpec) -> bool:
    return spec.launcher == "single" and spec.is_python


def start(spec: JobSpec, site: Site) -> AgentsScript:
    """Bash that starts all ranks in the background, and sets ``workers``."""
    entry = container(spec, site)
    options = (*entry.options, *(["--nodelist=$USED"] if spec.spare else []))
    how = Start(
        scheduler=site.family,
        command=spec.rank_command,
        python=spec.interpreter,
        torchrun=site.containers.torchrun if spec.container else "torchrun",
        prefix=entry.prefix,
        options=options,
        nodes=spec.nodes,
        nproc=spec.nproc_per_node,
        cpus=spec.cpus_per_task,
        masks=site.masks_of(spec),
        max_restarts=spec.max_restarts,
        numa_binding=spec.numa_binding,
        mpi=site.mpi.kind,
        mpi_flags=site.mpi.flags,
        carried=_carried(spec, site),
        staged=spec.uses_local_disk,
    )
    written = cast(ScriptLauncher, lookup("launcher", spec.launcher, SCRIPTED))(how)
    first = []
    if _alone(spec):
        first = ["# What programs read that were written for torchrun:"]
        first += ["export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1"]
    elif uses_pbs_rsh(spec, site):
        first = ["use_pbs_for_mpirun"]
    if spec.launcher != "torchrun":
        by_srun = site.family == "slurm" and spec.launcher != "mpirun"
        return AgentsScript((*first, *written), by_scancel(whole_job=True) if by_srun else by_signal())
    prefix = [
        "# shellcheck disable=SC2016 # torchrun fills this in",
        f"export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE={PREFIX}",
    ]
    start_agents = node_launcher(spec.fanout, site.family, nodes=spec.nodes, mpi=site.mpi.kind)
    written_options = tuple(map(expanded_code, options))
    agents = start_agents(
        Agents(tuple(written), spec.nodes, spec.agent_cpus, variables(spec, site), options=written_options)
    )
    return replace(agents, start=(*first, *prefix, *agents.start))


_STAGE = '"$STAGE_PYTHON" "$RUN/stage.py" "$STAGE_DO"'


def stage_nodes(spec: JobSpec, site: Site) -> AgentsScript:
    """Bash whose function ``on_all_nodes`` runs ``stage.py`` once on each node, as ``start`` starts their agents."""
    if spec.nodes == 1:
        return AgentsScript((), (), ('on_all_nodes() { stage_here "$1"; }',))
    start_agents = node_launcher(spec.fanout, site.family, nodes=spec.nodes, mpi=site.mpi.kind)
    agent = (f'exec {_STAGE} "$NODE_RANK"',)
    agents = start_agents(Agents(agent, spec.nodes, spec.agent_cpus, variables(spec, site)))
    # A shell of its own: its `agent` is not the one that starts the ranks.
    starts = (line for line in agents.start if not line.startswith("#"))  # of ranks, which these do not start
    lines = ['export_stage "$1"', "mark_processes", *agents.own, *starts, 'wait "$workers"']
    if agents.fixed:  # files of these agents would be taken for those of the ranks' own
        lines += ["code=$?", 'rm -f "$RUN"/agent-* "$RUN/agents.end"', 'exit "$code"']
    function = ["on_all_nodes() ( # in|back", *(f"  {line}" for line in lines), ")"]
    return replace(agents, own=tuple(function))


def uses_pbs_rsh(spec: JobSpec, site: Site) -> bool:
    """Whether Open MPI reaches the nodes of a PBS job."""
    fanout = choose(spec.fanout, site.family) if spec.launcher == "torchrun" else ""
    by_mpi = spec.launcher == "mpirun" or fanout == "mpiexec"
    return by_mpi and site.family == "pbs" and site.mpi.kind == "openmpi" and spec.nodes > 1


def container(spec: JobSpec, site: Site) -> Entry:
    """What takes the ranks into the job's container; empty without one."""
    return enter(spec, site, (*variables(spec, site), *spec.secrets))


def _carried(spec: JobSpec, site: Site) -> tuple[str, ...]:
    """What mpirun has to bring to the other nodes; LD_LIBRARY_PATH and PYTHONPATH it takes where they are set."""
    ours = ("PATH", "OMP_NUM_THREADS", "RUN", "RANKUP_RUN_DIR", "MASTER_ADDR", "MASTER_PORT")
    task = (*(["RANKUP_TASK"] if spec.array else []), *(["RANKUP_STAGE"] if spec.uses_local_disk else []))
    return tuple(dict.fromkeys((*ours, *task, *variables(spec, site), *spec.secrets)))
