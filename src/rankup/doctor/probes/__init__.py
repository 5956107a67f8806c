"""Probes: each gathers one kind of facts of its node, as a plain dict. None judges, and none changes the machine.

A probe is a function of the plan and of the node's rank. An agent runs each in a thread of its own, so that a hanging
file system or driver holds up no other. In reading order: ``machine`` (who this is, its limits), ``software`` (versions
and variables), ``gpus`` (what nvidia-smi says), ``names`` (name resolution and interfaces), ``ports`` (who listens),
``shared`` (the shared directory), ``network`` (every pair of nodes), ``cpus`` (cores and who steals them), ``ranks``
(what a rank has of its own), ``compute`` (the same with tensors, by children), ``compute_rank`` (such a child),
``micro_rank`` (a rank of a micro-benchmark).
"""

from __future__ import annotations

# Name of the facts → probe. All run at the same time.
PROBES = {
    "machine": "rankup.doctor.probes.machine:probe",
    "software": "rankup.doctor.probes.software:probe",
    "gpus": "rankup.doctor.probes.gpus:probe",
    "names": "rankup.doctor.probes.names:probe",
    "ports": "rankup.doctor.probes.ports:probe",
    "shared": "rankup.doctor.probes.shared:probe",
    "network": "rankup.doctor.probes.network:probe",
}
# What would disturb them, and be disturbed: one after another, when they have ended.
QUIET_PROBES = {
    "speed": "rankup.doctor.probes.cpus:probe",
}
# The second round.
COMPUTE_PROBES = {
    "compute": "rankup.doctor.probes.compute:probe",
}
