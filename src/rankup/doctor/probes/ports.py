"""Whether the port where the ranks will meet is free, and what listens on all interfaces."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import psutil

from rankup.doctor.plan import Plan


def probe(plan: Plan, node: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "port": plan.port if node == 0 else 0,
        "taken": None,
        "open_to_all": _open_to_all(),
    }
    if facts["port"]:
        facts |= port_state(facts["port"])
    return facts


def port_state(port: int) -> dict[str, Any]:
    """``taken``: none, in-use or refused (below 1024). It is bound for a moment, and never listened on."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As torch's store does it: a port that is only in TIME_WAIT is free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return {"taken": "in-use", "holder": _holder(port)}
            if error.errno in (errno.EACCES, errno.EPERM):
                return {"taken": "refused"}
    return {"taken": None}


def _listeners() -> list[Any]:
    try:
        return [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    except (psutil.Error, OSError):
        return []


def _holder(port: int) -> str:
    """Who listens, as ``NAME (pid N)``; empty if it is another user's."""
    for one in _listeners():
        if one.laddr.port == port and one.pid:
            try:
                return f"{psutil.Process(one.pid).name()} (pid {one.pid})"
            except psutil.Error:
                return f"pid {one.pid}"
    return ""


def _open_to_all() -> list[dict[str, Any]]:
    """Python processes of this user that listen on all interfaces, as torch's store does."""
    found = []
    for one in _listeners():
        if one.laddr.ip not in ("0.0.0.0", "::") or not one.pid:
            continue
        try:
            process = psutil.Process(one.pid)
            if process.uids().real == os.getuid() and process.name().startswith(("python", "torchrun")):
                found.append({"port": one.laddr.port, "pid": one.pid, "name": process.name()})
        except psutil.Error:
            continue
    return found
