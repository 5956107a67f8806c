"""A port that no other job on this host gets: bound, and held until whoever needs it has ended.

Two jobs that work out a port from their numbers may come to the same one, and so may two that look for a free one at
the same time. A port that is bound cannot be bound by another job; a server that sets SO_REUSEADDR, as torch's store
does, can listen on it all the same.

Job scripts hold this file's text, and run it with any Python 3 of the node: standard library alone, no newer syntax.
``python ports.py PID`` prints the port, and holds it while PID is its parent.
"""

import os
import random
import socket
import sys
import time

# Below 32768, where Linux begins to lend ports to anyone who connects to somewhere.
FIRST_PORT, LAST_PORT = 15000, 32767
_TRIES = 100


def hold_port() -> socket.socket:
    """A socket with a port of its own on all of this host's addresses; closing it lets go. Raises ``OSError``."""
    tries = random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), _TRIES)
    for port in [*tries, 0]:  # 0: any that is free
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Only now: with it before, two holders could have the same port, since neither of them listens.
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
