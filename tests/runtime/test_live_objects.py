"""A walk over all objects disturbs no thread that is just making one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from rankup.runtime.live_objects import objects_of


class Wanted:
    pass


def test_a_walk_finds_what_it_is_asked_for():
    wanted = [Wanted(), Wanted()]
    assert {id(thing) for thing in objects_of(lambda kind: kind is Wanted)} == set(map(id, wanted))


def test_a_tuple_that_another_thread_is_making_stays_its_own():
    """With a list of all objects alive, CPython raises SystemError as soon as such a tuple is resized."""
    over, wrong = threading.Event(), []

    def slowly() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.0005)
            yield number

    def makes() -> None:
        try:
            while not over.is_set():
                tuple(slowly())
        except SystemError as error:
            wrong.append(error)

    threads = [threading.Thread(target=makes) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        objects_of(lambda kind: kind is Wanted)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
