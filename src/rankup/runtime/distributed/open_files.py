"""Enough file descriptors for the connections between ranks: without them gloo aborts the process without a message."""

from __future__ import annotations

import os
import resource

from rankup.errors import RankupError

#: A soft limit is raised to the hard one, but at most to this: some programs close every possible descriptor.
ENOUGH = 65_536
#: The default group, the control, the patient and the snapshots' group, and a sub-group or two of a strategy.
GROUPS = 6
#: What a group costs beside one socket per rank (measured with torch 2.13: world size + 3).
PER_GROUP = 3
#: Data files, loaders' pipes, logs, snapshots.
BESIDES = 64


def raise_limit() -> None:
    """The soft limit of open files becomes the hard one, at most ``ENOUGH``; never lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_limit(world_size: int) -> None:
    """RankupError ``too-few-files`` if ``world_size`` ranks need more descriptors than this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One more per rank: the store's clients, all of which rank 0 serves.
    need = _open() + GROUPS * (world_size + PER_GROUP) + world_size + BESIDES
    if soft != resource.RLIM_INFINITY and soft < need:
        raise too_few(f"{world_size} processes need about {need} open files each", soft)


def too_few(what: str, limit: int | None = None) -> RankupError:
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return RankupError(
        "too-few-files",
        f"{what}, and the limit here is {limit}",
        context=f"hard limit {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}",
        hint="raise it before the job starts: `ulimit -n 65536`, or LimitNOFILE= of the scheduler's daemon "
        "and /etc/security/limits.conf if the hard limit is too low",
        exit_code=1,
    )


def is_too_few(error: BaseException) -> bool:
    """Whether ``error``, also one of gloo's, says that no descriptor was left."""
    return "Too many open files" in str(error)


def _open() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
    return 16
