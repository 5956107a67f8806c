"""A module of a script, with state of its own: see ``test_lost.py``."""

count = 0
TABLE = {"count": 0}


def next_count() -> int:
    global count
    count += 1
    return count
