"""Judges: pure functions of the facts of all nodes and ranks, which yield findings.

A judge reports a cause and leaves out what follows from it: a host whose name is wrong is not unreachable too. What is
usual on a healthy machine is not a finding. Their words are a table, ``findings.toml``.
In reading order: ``findings`` (reads it; one finding for all hosts), ``presence`` (who is missing), ``names``,
``interfaces``, ``network``, ``gpus``, ``placement`` (ranks and GPUs), ``agreement``, ``storage``,
``limits``, ``cores``, ``speed``, ``compute``, ``before`` (an earlier examination).
"""

from __future__ import annotations

# Code → judge, roots before what may follow from them. Within a severity this is the order of the report.
JUDGES = {
    "agents": "rankup.doctor.judges.presence:agents",
    "tasks": "rankup.doctor.judges.presence:tasks",
    "unfinished": "rankup.doctor.judges.presence:unfinished",
    "names": "rankup.doctor.judges.names:judge",
    "interfaces": "rankup.doctor.judges.interfaces:judge",
    "port": "rankup.doctor.judges.network:port",
    "network": "rankup.doctor.judges.network:pairs",
    "gpus": "rankup.doctor.judges.gpus:judge",
    "placement": "rankup.doctor.judges.placement:judge",
    "agreement": "rankup.doctor.judges.agreement:judge",
    "clocks": "rankup.doctor.judges.agreement:clocks",
    "storage": "rankup.doctor.judges.storage:judge",
    "limits": "rankup.doctor.judges.limits:judge",
    "cores": "rankup.doctor.judges.cores:judge",
    "links": "rankup.doctor.judges.speed:links",
    "stragglers": "rankup.doctor.judges.speed:stragglers",
    "compute": "rankup.doctor.judges.compute:judge",
}
