"""Why it does not scale: the parts of a step, and the largest loss in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import configuration, study

from rankup.scale.parts import largest_loss, limits, parts_table
from rankup.scale.summary import report


def with_parts(processes, data, compute, communication, optimizer, **given):
    parts = {"data": data, "compute": compute, "communication": communication, "optimizer": optimizer}
    one = configuration(processes, **given)
    return replace(one, runs=[replace(run, breakdown=parts) for run in one.runs])


ONE = with_parts(1, 0.001, 0.098, 0.0, 0.001)


def test_the_network_is_named_where_nodes_meet():
    four = with_parts(4, 0.001, 0.027, 0.0215, 0.0005, nodes=2, asked={"nodes": 2, "nproc": 2})
    made = report(study(ONE, four))
    sentence = "the network takes 43 % of a step on 2 nodes"
    assert f"the largest loss of ddp, 2 × 2 processes: {sentence}" in made.text
    (found,) = [one for one in made.findings if one.code == "network-limits"]
    assert sentence in found.message
    assert found.severity.name != "ERROR"


def test_within_a_node_it_is_communication_between_processes():
    two = with_parts(2, 0.001, 0.049, 0.05, 0.001)
    assert "communication between the processes takes 50 % of a step on 1 node" in largest_loss(
        study(ONE, two)
    )
    assert [one.code for one in limits(study(ONE, two))] == ["communication-limits"]


def test_data_that_is_waited_for_is_a_finding():
    two = with_parts(2, 0.04, 0.049, 0.01, 0.001)
    assert "waiting for data takes 40 % of a step" in largest_loss(study(ONE, two))
    assert [one.code for one in limits(study(ONE, two))] == ["data-limits"]


def test_computing_that_the_devices_do_not_share_is_told_with_the_excess():
    two = with_parts(2, 0.0, 0.098, 0.01, 0.001)
    assert "computing takes 90 % of a step on 1 node, 49.0 ms more than its share" in largest_loss(
        study(ONE, two)
    )
    assert list(limits(study(ONE, two))) == []


def test_in_weak_scaling_every_device_computes_as_much_as_one():
    two = with_parts(2, 0.001, 0.098, 0.05, 0.001)
    assert "communication between the processes" in largest_loss(study(ONE, two, scaling="weak"))


@pytest.mark.parametrize("one", [configuration(2), with_parts(2, 0.0, 0.0, 0.0, 0.0)])
def test_what_was_not_measured_is_not_told(one):
    assert largest_loss(study(configuration(1), one)) == ""
    assert parts_table(study(configuration(1), one)) == ""


def test_what_scales_perfectly_has_no_loss():
    two = with_parts(2, 0.0005, 0.049, 0.0, 0.0005)
    assert largest_loss(study(ONE, two)) == ""


def test_the_table_has_milliseconds_and_shares():
    lines = parts_table(study(ONE, with_parts(2, 0.001, 0.0495, 0.0495, 0.0))).splitlines()
    assert lines[1].split() == ["configuration", "step", "data", "compute", "communication", "optimizer"]
    assert lines[3].split()[3:] == [
        "100.0",
        "ms",
        "1.0",
        "(1%)",
        "49.5",
        "(50%)",
        "49.5",
        "(50%)",
        "0.0",
        "(0%)",
    ]
