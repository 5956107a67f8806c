"""Whose jobs run in a lab, which root alone can start."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rankup.errors import RankupError


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    gid: int
    home: str

    @property
    def tokens(self) -> tuple[str, ...]:
        """In front of a command that root starts and this user is to run."""
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups")


def job_user(name: str) -> User | None:
    """``name``, or who has called sudo; None: root itself."""
    name = name or os.environ.get("SUDO_USER", "")
    if name in ("", "root"):
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RankupError("unknown-user", f"this machine has no user {name!r}", context="--as") from None
    return User(name, found.pw_uid, found.pw_gid, found.pw_dir)


@contextmanager
def acting_as(user: User | None) -> Iterator[None]:
    """This process makes and changes files as ``user`` while the body runs, and ``as_root`` interrupts that.

    The real user stays root: the hosts of a lab die with this process, which the kernel allows to none but their owner.
    """
    if user is None:
        yield
        return
    environment, groups = dict(os.environ), os.getgroups()
    os.environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
    for name in ("SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_COMMAND"):
        os.environ.pop(name, None)
    try:
        os.initgroups(user.name, user.gid)
        os.setegid(user.gid)
        os.seteuid(user.uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.environ.clear()
        os.environ.update(environment)


@contextmanager
def as_root() -> Iterator[None]:
    uid, gid = os.geteuid(), os.getegid()
    os.seteuid(0)
    os.setegid(0)
    try:
        yield
    finally:
        os.setegid(gid)
        os.seteuid(uid)
