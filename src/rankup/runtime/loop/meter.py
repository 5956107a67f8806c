"""Means over many batches, ranks and attempts: summed on the device, without a wait until they are read.

    for epoch in run.epochs(90):
        for x, y in epoch:
            …
            run.meter.add(loss=loss, accuracy=output.argmax(1) == y)
        means = run.meter.means()                  # of all ranks' samples since the last call: this epoch's

``run.meter`` is in the snapshots, so that an epoch that was interrupted is counted once and whole, on another number of
ranks too.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from rankup.errors import RankupError
from rankup.runtime.context import RunContext

Sum = float | torch.Tensor  # float64
Count = float | torch.Tensor


class Means(dict[str, float]):
    """Name → mean; ``counts``: name → samples, or their weight, that it is the mean of. NaN where that is 0."""

    def __init__(self, sums: dict[str, float], counts: dict[str, float]) -> None:
        super().__init__(
            {name: total / counts[name] if counts[name] else float("nan") for name, total in sums.items()}
        )
        self.counts = counts

    def __missing__(self, name: str) -> float:
        raise RankupError(
            "no-mean",
            f"no rank has added {name!r} to the meter since the last call of means()",
            context=f"it holds {', '.join(self)}" if self else "it is empty",
            hint="means() empties the meter: call it once, and keep what it returns; or means(reset=False)",
            exit_code=1,
        )


class _Run(Protocol):
    """``rankup.Run``, which this module does not import."""

    @property
    def _context(self) -> RunContext: ...


class Meter:
    """``run.meter``, and others that you make by ``rankup.Meter(run)``: these are in no snapshot unless you register
    them."""

    #: Its state is each rank's own.
    per_rank = True

    def __init__(self, run: _Run) -> None:
        self._run = run._context
        self._clear()

    def _clear(self) -> None:
        self._sums: dict[str, Sum] = {}
        self._counts: dict[str, Count] = {}
        self._evaluates: bool | None = None  # whether what is in it comes from an evaluation

    def add(self, *, count: Count | None = None, reduction: str = "mean", **values: Any) -> None:
        """Add this batch's ``values``: each one number, the mean over this rank's samples, or a tensor of one value per
        sample. ``count`` is how many samples (tokens, pixels; with class weights the sum of these) it is the mean of,
        where that is another number; with ``reduction="sum"`` values are sums over them. Tensors stay on the device.

        A batch without samples of this rank (a dummy batch) adds nothing, whatever its values are.
        """
        run = self._run
        samples = run.samples if run.batch is not None else None
        if reduction not in ("mean", "sum"):
            raise RankupError(
                "bad-reduction", f"run.meter.add(reduction={reduction!r}): mean or sum", exit_code=1
            )
        if samples is None and count is None:
            raise RankupError(
                "no-count",
                "run.meter.add(…) outside of a loop's body requires count=, the samples of the values",
                exit_code=1,
            )
        self._check_source()
        if samples == 0:
            return
        for name, value in values.items():
            run.nan_watch.see(f"{name} of run.meter", value, run.batch, run.global_step + 1)
            self._accumulate(name, *_sum_of(name, value, samples, count, reduction))

    def _accumulate(self, name: str, value: Any, factor: Count, number: Count) -> None:
        """Add ``value`` · ``factor``, of ``number`` samples; of none, nothing: 0 · NaN is NaN."""
        mine = self._sums.get(name, 0.0)
        if isinstance(number, torch.Tensor):
            # In float64 from here on: a weight may have a fraction, and a sum of many outgrows fp32.
            number, weighted = number.detach().double(), isinstance(factor, torch.Tensor)
            wide = torch.as_tensor(value, dtype=torch.float64, device=getattr(value, "device", number.device))
            value, factor = torch.where(number > 0, wide * number if weighted else wide, 0.0), 1
        if not isinstance(number, torch.Tensor) and number == 0:
            pass
        elif isinstance(value, torch.Tensor):
            assert not isinstance(factor, torch.Tensor)
            if not isinstance(mine, torch.Tensor):
                mine = torch.tensor(mine, dtype=torch.float64, device=self._run.device)
            mine.add_(value.detach(), alpha=factor)  # in float64, by one kernel
        else:
            mine = mine + value * factor
        self._sums[name] = mine
        self._counts[name] = self._counts.get(name, 0) + number

    def means(self, *, reset: bool = True) -> Means:
        """The means over all ranks of what was added since the last call, or since the first with ``reset=False``.
        A collective, and waits for the device."""
        self._run.check_sum()
        self._run.nan_watch.ask()
        mine = (self._numbers(), self._read_counts())
        if reset:
            self._clear()
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        from rankup.runtime.distributed.reduce import gather

        for their_sums, their_counts in gather(mine, self._run.control, "run.meter.means"):
            for name, value in their_sums.items():
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + their_counts[name]
        return Means(sums, counts)

    def here(self) -> Means:
        """The means of this rank's samples so far, which stay. No collective; waits for the device."""
        return Means(self._numbers(), self._read_counts())

    @property
    def names(self) -> list[str]:
        """What this rank has added; needs no wait."""
        return list(self._sums)

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "counts": self._read_counts(), "evaluates": self._evaluates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.load_rank_states([state_dict])

    def load_rank_states(self, states: list[dict[str, Any]]) -> None:
        """Another number of ranks: each goes on with the sums of the old ranks that it takes over, or with none."""
        self._clear()
        for state in states:
            self._evaluates = state["evaluates"]
            for name, value in state["sums"].items():
                self._accumulate(name, value, 1, state["counts"][name])

    def _numbers(self) -> dict[str, float]:
        tensors = {name: value for name, value in self._sums.items() if isinstance(value, torch.Tensor)}
        read = (
            dict(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True)) if tensors else {}
        )
        return {name: read[name] if name in read else float(value) for name, value in self._sums.items()}

    def _read_counts(self) -> dict[str, float]:
        """Of samples, ints."""
        read = {name: float(count) for name, count in self._counts.items()}
        return {name: int(count) if count.is_integer() else count for name, count in read.items()}

    def _check_source(self) -> None:
        """An error for a mean of training and test samples together."""
        evaluates = self._run.evaluating
        if self._evaluates is None or not self._sums:
            self._evaluates = evaluates
        elif self._evaluates != evaluates:
            first, second = (
                ("an evaluation", "the training") if self._evaluates else ("the training", "an evaluation")
            )
            raise RankupError(
                "meter-mixed",
                f"run.meter.add in {second}, while the meter holds values of {first}",
                hint="call run.meter.means() before, which empties it; or measure the evaluation with "
                "meter = rankup.Meter(run)",
                exit_code=1,
            )


def _sum_of(
    name: str, value: Any, samples: int | None, count: Count | None, reduction: str
) -> tuple[Any, Count, Count]:
    """(value, factor, number): the sum is value · factor, of so many samples."""
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        if reduction == "mean" and count is None and samples is not None and value.numel() == samples:
            return value.detach().double().sum(), 1, samples
        raise RankupError(
            "bad-metric",
            f"run.meter.add({name}=…) got a tensor of shape {tuple(value.shape)}",
            hint=f"one number, the mean over this rank's batch, or one value for each of its {samples} samples; of "
            f"nodes, tokens or pixels their mean, and their number: run.meter.add({name}=….mean(), count=…)",
            exit_code=1,
        )
    if isinstance(value, torch.Tensor):
        value = value.reshape(())
    elif not isinstance(value, (bool, int, float)):
        try:
            value = float(value)  # NumPy's numbers
        except (TypeError, ValueError):
            raise RankupError(
                "bad-metric",
                f"run.meter.add({name}=…) got a {type(value).__name__}, and a metric is one number",
                exit_code=1,
            ) from None
    assert count is not None or samples is not None
    number: Count = samples if count is None else count  # type: ignore[assignment]
    return value, 1 if reduction == "sum" else number, number
