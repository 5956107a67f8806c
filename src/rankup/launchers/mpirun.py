"""mpirun, one process per rank: Open MPI's, or PALS's mpiexec (Cray EX). It starts processes; nobody speaks MPI."""

from __future__ import annotations

from rankup.launchers.base import Start, code, in_background, rank_shell

_OPENMPI = {
    "RANK": "$OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "$OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "$OMPI_COMM_WORLD_SIZE",
    "LOCAL_WORLD_SIZE": "$OMPI_COMM_WORLD_LOCAL_SIZE",
    "NODE_RANK": "$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE))",
}
_PALS = {"RANK": "$PALS_RANKID", "LOCAL_RANK": "$PALS_LOCAL_RANKID", "NODE_RANK": "$PALS_NODEID"}


def lines(start: Start) -> list[str]:
    """Bash that starts all ranks in the background. The site's own flags for mapping and binding win over ours."""
    if start.mpi == "pals":
        return _pals(start)
    # Open MPI binds each of two ranks to one core, unless told.
    mapping = [f"--map-by ppr:{start.nproc}:node" + (f":PE={start.cpus}" if start.cpus else "")]
    mapping += [f"--bind-to {'core' if start.cpus else 'none'}"]
    if start.mpi_flags:
        mapping = [" ".join(map(code, start.mpi_flags))]
    hosts = ['--hostfile "$PBS_NODEFILE"'] if start.scheduler == "pbs" else []
    carried = [f"-x {name}" for name in start.carried]
    carried += [f"${{{name}:+-x {name}}}" for name in ("LD_LIBRARY_PATH", "PYTHONPATH")]
    options = [f"-np {start.world_size}", *hosts, *mapping, *carried]
    # In a SLURM job mpirun's own daemons are a step, whose size Lightning takes for that of the world.
    unset = "SLURM_NTASKS" if start.scheduler == "slurm" else ""
    ranks = rank_shell(start, _OPENMPI, unset=unset, labelled=True)
    return in_background(f"mpirun {' '.join(options)}", ranks)


def _pals(start: Start) -> list[str]:
    binding = f"--cpu-bind depth --depth {start.cpus}" if start.cpus else "--cpu-bind none"
    flags = " ".join(map(code, start.mpi_flags)) or binding
    variables = {**_PALS, "WORLD_SIZE": str(start.world_size), "LOCAL_WORLD_SIZE": str(start.nproc)}
    options = f"-n {start.world_size} --ppn {start.nproc} {flags} --envall"
    return in_background(f"mpiexec {options}", rank_shell(start, variables, labelled=True))
