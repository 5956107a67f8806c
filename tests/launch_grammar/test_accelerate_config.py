"""What accelerate's configuration file says is read as options are, from YAML and JSON alike."""

import json

import pytest

from rankup.launch_grammar.accelerate_config import accelerate_config

YAML = """compute_environment: LOCAL_MACHINE
fsdp_config:
  num_machines: 7
machine_rank: 0
main_process_ip: 'node1'
main_process_port: null
num_machines: 2   # nodes
num_processes: 8
use_cpu: false
"""


def test_sizes_and_the_rendezvous_come_from_the_top_level():
    assert accelerate_config(YAML) == {
        "node_rank": "0",
        "master_addr": "node1",
        "nnodes": "2",
        "num_processes": "8",
    }


def test_json_says_the_same():
    told = {"num_machines": 2, "main_process_ip": None, "fsdp_config": {"num_machines": 7}}
    assert accelerate_config(json.dumps(told)) == {"nnodes": "2"}


@pytest.mark.parametrize("text", ["", "{", "# nothing", "- a\n- b", "num_machines:"])
def test_what_cannot_be_read_gives_nothing(text):
    assert accelerate_config(text) == {}
