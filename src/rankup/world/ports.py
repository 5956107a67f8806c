"""A port that no other job on this host gets: it is bound, and held until its user has ended.

Two jobs that derive a port from their ids may get the same one. So may two jobs that look for a free port at the same
time. If a port is bound, another job cannot bind it; but a server that sets SO_REUSEADDR, like torch's store, can still
listen on it.

Job scripts contain this file's text, and run it with any Python 3 of the node: use the standard library and old syntax
only. ``python ports.py PID`` prints the port, and holds it while PID is its parent.
"""

import os
import random
import socket
import sys
import time

# Below 32768: from there on Linux assigns ports to outgoing connections.
FIRST_PORT, LAST_PORT = 15000, 32767
_TRIES = 100


def hold_port() -> socket.socket:
    """A socket with its own port on all addresses of this host. Closing it releases the port. Raises ``OSError``."""
    tries = random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), _TRIES)
    for port in [*tries, 0]:  # 0: any free port
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Set this after the bind: before it, two holders could bind the same port, because neither of them listens.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder
    raise OSError("no port is free")


def hold_for(parent: int) -> None:
    with hold_port() as holder:
        print(holder.getsockname()[1], flush=True)
        while os.getppid() == parent:
            time.sleep(0.5)


if __name__ == "__main__":
    hold_for(int(sys.argv[1]))
