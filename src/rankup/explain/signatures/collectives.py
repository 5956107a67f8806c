"""gloo, barriers, and what torchrun and mp.spawn say when a rank has failed."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, LOOK_AT_PEERS, NOISE, ROOT, WEAK, Signature
from rankup.run.failure import ABORT_AT_EXIT, CONSEQUENCE

COLLECTIVES = (
    Signature(
        name="unknown-interface",
        pattern="Unable to find address for:|Unable to find interface for:|ifa != nullptr",
        level=ROOT,
        what="the network interface that gloo was told to use does not exist on this node",
        cause=(
            "GLOO_SOCKET_IFNAME names an interface that this node lacks, or is a list, a pattern "
            "or an address"
        ),
        fix="unset it, or give one name that `ip -brief address` shows on each node",
        example=(
            "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. "
            "Unable to find address for: eth9"
        ),
        rules=("RK116", "RK117"),
    ),
    Signature(
        name="gloo-loopback",
        pattern=r"connectFullMesh failed.*127\.0\.0\.1|Gloo connectFullMesh failed",
        level=WEAK,
        what="gloo cannot connect the ranks of different nodes",
        cause=(
            "gloo has announced an address that other nodes do not reach, often 127.0.0.1: the "
            "host's own name resolves to loopback"
        ),
        fix="set GLOO_SOCKET_IFNAME to the interface between the nodes (`rankup.init()` does)",
        example=(
            "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no "
            "error, remote=[127.0.0.1]:41234"
        ),
        rules=("RK117",),
        likely=True,
    ),
    Signature(
        name="collective-mismatch",
        pattern=(
            "Is there a distributed collective mismatch|Detected mismatch between collectives on ranks"
            "|Collectives differ in the following"
        ),
        level=ROOT,
        what="the ranks called different collectives at the same time",
        cause=(
            "one rank takes another path through the script: a collective, a save or an evaluation in a "
            "branch that depends on the rank, or tensors of different sizes"
        ),
        fix="call the same collectives on all ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names the line of each rank",
        example=(
            "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 40 vs 16. "
            "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"
        ),
        rules=("RK207", "RK210"),
        exits=(-6, 134),
        of_all=True,
    ),
    Signature(
        name="monitored-barrier",
        pattern=r"Ranks? ([\d, ]+) failed to pass monitoredBarrier",
        level=WEAK,
        what="a rank did not come to a barrier in time",
        cause=(
            "that rank was still busy or hung elsewhere, had failed, or takes another path through the script"
        ),
        fix="look what that rank did last; compare the branches that depend on the rank",
        example="RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms",
        rules=("RK207",),
    ),
    Signature(
        name="monitored-barrier-follower",
        pattern="reached monitoredBarrier, but received errors",
        level=FALLOUT,
        what="rank 0 had failed at a barrier",
        cause="rank 0 gave up",
        fix=LOOK_AT_PEERS,
        example=(
            "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0."
        ),
    ),
    Signature(
        name="gloo-timeout",
        pattern=(
            r"Timed out waiting \d+ms for (recv|send) operation|Timeout waiting for key"
            r"|Wait timeout after \d+ms"
        ),
        level=WEAK,
        what="a rank waited for another one until the timeout",
        cause=(
            "not all ranks came to the same collective: one hung, failed or ran longer, or has "
            "fewer steps than the others"
        ),
        fix=(
            "give all ranks the same number of steps; look for an earlier error, and for "
            "collectives in branches that depend on the rank"
        ),
        example=(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms "
            "for recv operation to complete"
        ),
        rules=("RK207", "RK305"),
    ),
    Signature(
        name="peer-closed-connection",
        pattern=f"(?i:{CONSEQUENCE.pattern})",
        level=FALLOUT,
        what="the connection to another rank was lost",
        cause="another rank ended while this one communicated with it",
        fix=LOOK_AT_PEERS,
        example=(
            "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:44448."
        ),
    ),
    Signature(
        name="rank-left-early",
        pattern=ABORT_AT_EXIT,
        level=FALLOUT,
        what="a rank ended while its communicator's thread still ran",
        cause="its script had come to the end while other ranks still communicated",
        fix="give all ranks the same number of steps, and end with destroy_process_group()",
        example="terminate called without an active exception",
        exits=(-6, 134),
    ),
    Signature(
        name="torchrun-summary",
        pattern=r"ChildFailedError|elastic[./]multiprocessing[./]api.*failed \(exitcode",
        level=FALLOUT,
        what="torchrun reports a failed rank",
        cause="a rank ended with an error",
        fix=LOOK_AT_PEERS,
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ),
    Signature(
        name="spawn-summary",
        pattern=r"ProcessRaisedException|ProcessExitedException: process (\d+) terminated with exit code",
        level=FALLOUT,
        what="a spawned process failed",
        cause="a process of mp.spawn ended with an error",
        fix="look for its own traceback",
        example="torch.multiprocessing.spawn.ProcessRaisedException:",
    ),
    Signature(
        name="terminated-from-outside",
        pattern=r"SignalException: .*got signal: (\d+)|Received (\d+) death signal",
        level=WEAK,
        what="the launcher got a signal from outside",
        cause=(
            "the scheduler, srun (because another task had failed) or a user ended the job; the "
            "log does not say why"
        ),
        fix=(
            "look for a time limit or a failed task in the scheduler's own words (`sacct -j JOB`), "
            "and in the logs of other nodes"
        ),
        example=("torch.distributed.elastic.multiprocessing.api.SignalException: Process 10 got signal: 15"),
        likely=True,
    ),
    Signature(
        name="noise-destroy",
        pattern=r"destroy_process_group\(\) was not called",
        level=NOISE,
        what="a process group was not destroyed",
        cause="it is a warning at exit",
        fix="call destroy_process_group() at the end",
        example=(
            "[rank0]:[W1122 14:34:26 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
            "destroy_process_group() was not called before program exit"
        ),
        rules=("RK211",),
    ),
)
