"""What a loop that enters a snapshot says, where the two do not fit together."""

from __future__ import annotations

from rankup.core.whole_lines import say
from rankup.runtime.call_site import call_site
from rankup.snapshots.snapshot import Snapshot


def is_done(found: Snapshot, unit: str, goal: int) -> bool:
    """Whether the loop over ``goal`` epochs or steps has ended in an earlier attempt, as it is now."""
    return bool(found.metadata.get("done")) and found.metadata["loop"] == {"unit": unit, "goal": goal}


def warn_of_another_training(found: Snapshot, begun: str) -> None:
    """``begun``: with which weights this training began. Trainings without a name are found by their order: a script
    that leaves out those that are done finds the first one where it begins the second."""
    if found.metadata["begun"] != begun:
        say(
            f"warning: nothing is trained, since {found.path.name} is the end of a training without a name; but that "
            "one began with other weights, and may be another one: if the script leaves out trainings that are done, "
            'their order has changed, and rankup.init(name=f"member-{k}") tells them apart'
        )


def warn_of_another_loop(found: Snapshot, unit: str, goal: int, done: bool) -> None:
    """``done``: whether nothing is left of the loop's goal."""
    before, said = found.metadata["loop"], ""
    if done and found.metadata.get("within"):
        said = f"{found.path.name} was taken after them: nothing is trained"
    elif before["unit"] == unit and before["goal"] > goal:
        said = (
            f"was over {unit}={before['goal']} when {found.path.name} was saved: this training ends earlier"
        )
    if said:
        say(
            f"warning: the loop at {call_site()} is over {unit}={goal}, and {said}. {unit}= counts from the beginning, "
            f"also after a resume: if the script takes off what is done ({unit}=n - start), leave that out"
        )


def outside_of_loop(found: Snapshot) -> str:
    """What to say before the next batch, if the loop was left by a break when ``found`` was saved; else ""."""
    if found.metadata.get("within"):
        return ""
    return (
        f"warning: {found.path.name} was taken outside of the loop at {call_site()}, and none within it is there: the "
        "loop goes on after it. If it must not (early stopping), register what decides: values = "
        "run.register(stopped=False), values.stopped = True before the break, and if values.stopped: break as the "
        "first statement of the loop over epochs"
    )
