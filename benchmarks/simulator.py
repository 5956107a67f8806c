"""The simulated step against real ones: DDP on gloo, two hosts, a link of three speeds.

The hosts are network namespaces that a cable with a rate limit (tc's token bucket) joins; so it needs root. Each round
has, one after the other: a step under ``no_sync``, a synchronised step, and an all-reduce of each size of the sweep.
What the simulator gets: forward and backward of the first, α and β from the last, DDP's buckets by their rule. What it
must meet: the second. Times are those of the slower rank, medians over rounds.

``python -m benchmarks.simulator RANK …`` is one rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.contest import Claim, Result
from rankup.core import shell
from rankup.scale.predict.buckets import ddp_buckets
from rankup.scale.predict.links import RING, Links, fit_link
from rankup.scale.predict.points import Size
from rankup.scale.predict.simulate import Work, step_seconds

SPEEDS = (100, 300, 1000)  # Mbit/s
# Of the sizes of the buckets: the limit lets smaller messages pass in one burst, faster than its own rate.
SWEEP = (2 * 1024**2, 4 * 1024**2, 8 * 1024**2, 12 * 1024**2)
WIDTH, LAYERS, BATCH = 1024, 4, 128
_RANK = (sys.executable, "-m", "benchmarks.simulator")


def run(quick: bool) -> Result:
    if os.geteuid() != 0:
        raise SystemExit("simulator: needs root, for network namespaces")
    rounds = 3 if quick else 9
    values: dict[str, list[float]] = {}
    claims, notes = [], []
    for speed in SPEEDS:
        with _cable(speed) as hosts:
            found = _measure(hosts, rounds)
        simulated = 1e3 * _simulate(found)
        real = [1e3 * value for value in found["synchronised"]]
        deviation = abs(simulated / statistics.median(real) - 1)
        values |= {
            f"real, {speed} Mbit/s": real,
            f"simulated, {speed} Mbit/s": [simulated] * rounds,
            f"deviation, {speed} Mbit/s, %": [100 * deviation] * rounds,
        }
        claims.append(
            Claim(f"deviation at {speed} Mbit/s, %", f"deviation, {speed} Mbit/s, %", None, 15, at_most=True)
        )
        link = _link(found)
        alone = 1e3 * (statistics.median(found["forward"]) + statistics.median(found["backward"]))
        sent = 1e3 * sum(link.allreduce(bucket, 2, RING) for bucket in ddp_buckets(found["parameters"]))
        spread = (max(real) - min(real)) / statistics.median(real)
        notes.append(
            f"{speed} Mbit/s: fitted α {link.alpha * 1e3:.2f} ms, β {link.beta * 8e-6:.0f} Mbit/s; computation alone "
            f"{alone:.0f} ms, all-reduces alone {sent:.0f} ms; the real steps spread by {spread:.0%}; load average "
            f"{os.getloadavg()[0]:.1f}.\n"
        )
    settings = {"network": f"{LAYERS} layers of {WIDTH}²", "batch": BATCH, "hosts": 2, "threads each": 1}
    return Result("simulator", "A simulated step and a real one", "ms/step", settings, values, claims, notes)


def _simulate(found: dict[str, Any]) -> float:
    work = Work(
        statistics.median(found["forward"]),
        statistics.median(found["backward"]),
        tuple(ddp_buckets(found["parameters"])),
    )
    return step_seconds(work, Links(between=_link(found), algorithm=RING), Size(2, 1))[0]


def _link(found: dict[str, Any]):
    return fit_link(
        [(int(size), statistics.median(times)) for size, times in found["sweep"].items()], 2, RING
    )


def _measure(hosts: list[str], rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "times.json")
        processes = [
            shell.start(
                ["ip", "netns", "exec", host, *_RANK, str(rank), str(rounds), str(out)],
                die_with_parent=True,
            )
            for rank, host in enumerate(hosts)
        ]
        try:
            codes = [process.wait(timeout=600) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            raise SystemExit(f"simulator: the ranks ended with {codes}")
        return json.loads(out.read_text())  # type: ignore[no-any-return]


@contextlib.contextmanager
def _cable(speed: int) -> Iterator[list[str]]:
    """Two namespaces, and between them a link of so many Mbit/s in each direction."""
    hosts = [f"rankup-bench-{os.getpid()}-{index}" for index in range(2)]
    try:
        for host in hosts:
            _ip(f"netns add {host}")
            _ip(f"-n {host} link set lo up")
        _ip(f"link add eth0 netns {hosts[0]} type veth peer name eth0 netns {hosts[1]}")
        for index, host in enumerate(hosts):
            _ip(f"-n {host} addr add 10.79.0.{index + 1}/24 dev eth0")
            _ip(f"-n {host} link set eth0 up")
            # A larger burst would pass a good part of a bucket at once, after the pause between two steps.
            limit = f"tc qdisc add dev eth0 root tbf rate {speed}mbit burst 64k latency 100ms"
            _run(["ip", "netns", "exec", host, *limit.split()])
        yield hosts
    finally:
        for host in hosts:
            shell.run(["ip", "netns", "del", host])


def _ip(command: str) -> None:
    _run(["ip", *command.split()])


def _run(tokens: list[str]) -> None:
    done = shell.run(tokens)
    if done.code != 0:
        raise SystemExit(f"simulator: {shell.quote(tokens)}: {done.err.strip()}")


def rank_main(rank: int, rounds: int, out: Path) -> None:
    """One rank. Rank 0 writes the times, in seconds, each the slower rank's."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {"GLOO_SOCKET_IFNAME": "eth0", "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29517"}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    inputs = torch.randn(BATCH, WIDTH)
    found: dict[str, Any] = {
        "forward": [],
        "backward": [],
        "synchronised": [],
        "sweep": {size: [] for size in SWEEP},
    }

    def slower(*seconds: float) -> list[float]:
        times = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX)
        return [float(value) for value in times]

    def step() -> list[float]:
        model.zero_grad()
        dist.barrier()
        began = time.perf_counter()
        loss = model(inputs).square().mean()
        middle = time.perf_counter()
        loss.backward()
        ended = time.perf_counter()
        return slower(middle - began, ended - middle, ended - began)

    for number in range(-2, rounds):  # the first synchronised backward has other buckets
        with model.no_sync():
            forward, backward, _ = step()
        together = step()[2]
        if number >= 0:
            found["forward"].append(forward)
            found["backward"].append(backward)
            found["synchronised"].append(together)
        for size in SWEEP:
            tensor = torch.zeros(size // 4)
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            seconds = slower(time.perf_counter() - began)
            if number >= 0:
                found["sweep"][size] += seconds
    found["parameters"] = [p.numel() * p.element_size() for p in model.module.parameters()]
    if rank == 0:
        out.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    rank_main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
