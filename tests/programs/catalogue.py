"""Every program, in the order of the table. A family is a module; a program is a class with a plain loop of its own."""

from __future__ import annotations

import inspect

from programs import (
    adversarial,
    averages,
    data_sets,
    deciding,
    functional,
    generative,
    language,
    large_batches,
    layers,
    losses,
    memories,
    optimizers,
    own_gradients,
    own_objects,
    samplers,
    schedules,
    shared_parts,
    stages,
)
from programs.program import Program

FAMILIES = (
    optimizers,
    schedules,
    averages,
    large_batches,
    losses,
    language,
    layers,
    shared_parts,
    memories,
    adversarial,
    own_gradients,
    own_objects,
    functional,
    generative,
    data_sets,
    samplers,
    deciding,
    stages,
)


def _programs() -> list[type[Program]]:
    found = []
    for family in FAMILIES:
        own = [
            thing
            for thing in vars(family).values()
            if inspect.isclass(thing) and issubclass(thing, Program) and thing.__module__ == family.__name__
        ]
        found += [program for program in own if not program.is_abstract()]
    return found


PROGRAMS: list[type[Program]] = _programs()
