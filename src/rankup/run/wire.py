"""One JSON line there, one back, over a socket: what the nodes of a run say to each other before it starts."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

PROTOCOL = 1
_LONGEST = 65536  # bytes in a line: enough for the process counts of some ten thousand nodes


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps({"rankup": PROTOCOL, **message}).encode() + b"\n")


def receive(connection: socket.socket, deadline: float, check: Callable[[], None]) -> dict[str, Any] | None:
    """The other side's line, or None where it is not one of ours, too long, cut off, or not there by ``deadline``.

    ``deadline`` as of ``time.monotonic``; ``check`` is called while waiting and may raise.
    """
    data = b""
    connection.settimeout(0.2)
    while not data.endswith(b"\n"):
        check()
        if time.monotonic() > deadline or len(data) > _LONGEST:
            return None
        try:
            more = connection.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return None
        if not more:
            return None
        data += more
    try:
        message = json.loads(data)
    except ValueError:
        return None
    return message if isinstance(message, dict) and message.get("rankup") == PROTOCOL else None
