"""Which figures a report has."""

from __future__ import annotations

from rankup.scale.report.content import Content
from rankup.scale.report.figures.breakdown import breakdown
from rankup.scale.report.figures.cost import cost
from rankup.scale.report.figures.learning import learning
from rankup.scale.report.figures.picture import Picture
from rankup.scale.report.figures.ranks import rank_pictures
from rankup.scale.report.figures.scaling import efficiency, speedup, throughput, training_time
from rankup.scale.report.figures.utilization import MEASURES, utilization


def all_pictures(content: Content) -> list[Picture]:
    """Those that the content has numbers for, in the order of the page."""
    rows, groups = content.rows, content.groups
    drawn = [
        throughput(rows),
        training_time(rows),
        speedup(rows),
        efficiency(rows),
        breakdown(rows),
        cost(rows),
        *(learning(groups, what, against) for what in ("loss", "accuracy") for against in ("epochs", "time")),
        *rank_pictures(content.ranks),
        *(utilization(groups, measure) for measure in MEASURES),
    ]
    return [picture for picture in drawn if picture is not None]
