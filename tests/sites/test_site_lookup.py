"""Profiles: the built-in ones say what their centres do; a user's may extend them; mistakes name file and key."""

from __future__ import annotations

import pytest

from asking import ask
from rankup.errors import RankupError
from rankup.resolve.precedence import check_defaults
from rankup.script.render import render
from rankup.sites.lookup import BUILT_IN, choose_site, find_site, list_sites, load_site, places

NAMES = {path.stem for path in BUILT_IN.glob("*.toml")}


@pytest.fixture
def own(tmp_path):
    """A project's directory of profiles."""
    folder = tmp_path / ".rankup" / "sites"
    folder.mkdir(parents=True)
    return folder


def test_every_profile_of_a_centre_says_where_and_when_it_was_read_and_the_new_ones_that_they_are_untried(
    tmp_path,
):
    sites = {name: find_site(name, {}, tmp_path) for name in NAMES - {"slurm", "pbs", "local"}}
    assert all(site.source.page and site.source.seen for site in sites.values())
    tried = {"cyclone", "cyclone@2023", "della", "della@2023", "alliance@2023", "eap", "sockeye"}
    assert {name for name, site in sites.items() if not site.untried} == tried
    assert sites["roihu"].source.of_key("queue_time.gputest").page.endswith("batch-job-partitions/")
    assert sites["roihu"].source.of_key("when.gpu.modules").page.endswith("(Roihu-GPU)")
    assert sites["lumi"].source.oldest == "2024-10-15"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_built_in_profile_is_well_formed_and_jobs_can_have_its_defaults(tmp_path, name):
    site = find_site(name, {}, tmp_path)
    check_defaults(site)
    assert (site.name, bool(site.title)) == (name, True)


# What the centres document: site → (a job's flags, what the job then is, what the site is).
FACTS = {
    "cyclone@2023": (
        {"gpus_per_node": 4, "nodes": 2},
        {"queue": "gpu", "launcher": "srun", "nproc_per_node": 4, "modules": (
            "PyTorch/1.12.0-foss-2022a-CUDA-11.7.0", "torchvision/0.13.1-foss-2022a-CUDA-11.7.0",
            "cuDNN/8.4.1.50-CUDA-11.7.0", "CUDA/11.7.0", "NCCL/2.12.12-GCCcore-11.3.0-CUDA-11.7.0",
        )},
        {"scheduler": "slurm", "output": "{name}_%j.out", "error": "{name}_%j.err"},
    ),
    "eap": (
        {"gpus_per_node": 4, "nodes": 2},
        {"queue": "blanca", "launcher": "torchrun", "cpus_per_node": 288,
         "modules": ("cray-python/3.11.7", "cuda/12.6")},
        {"scheduler": "pbs", "env": {"FI_PROVIDER": "cxi"}, "launchers": ("torchrun",)},
    ),
    "olivia": (
        {"gpus_per_node": 4, "account": "a"},
        {"queue": "accel", "mem": 440 * 1024, "cpus_per_task": 72,
         "container": "/cluster/work/support/container/pytorch_nvidia_25.06_arm64.sif"},
        {"scheduler": "slurm", "required": ("account",)},
    ),
    "olivia@eessi": (
        {"gpus_per_node": 4, "nodes": 2, "account": "a"},
        {"queue": "accel", "mem": 440 * 1024, "cpus_per_task": 72, "container": "", "env": {}, "modules": (
            "EESSI/2025.06", "PyTorch/2.7.1-foss-2024a-CUDA-12.6.0", "torchvision/0.22.0-foss-2024a-CUDA-12.6.0",
        )},
        {"scheduler": "slurm", "required": ("account",)},
    ),
    "olivia@module": (
        {"gpus_per_node": 4, "account": "a"},
        {"container": "", "modules": ("NRIS/GPU", "NCCL/2.26.6-GCCcore-14.2.0-CUDA-12.8.0", "PyTorch/2.8.0")},
        {"env": {"PYTORCH_OVERLAY_MODE": "ro"}, "required": ("account",)},
    ),
    "sockeye": (
        {"gpus_per_node": 4, "nodes": 2, "account": "a"},
        {"launcher": "mpirun",
         "modules": ("gcc/9.4.0", "python/3.8.10", "cuda/11.3.1", "nccl/2.9.9-1-cuda11-3")},
        {"scheduler": "pbs", "python": "3.8.10", "launchers": ("torchrun", "mpirun")},
    ),
    "alliance@2023": (
        {"gpus_per_node": 4, "nodes": 2, "account": "a"},
        {"launcher": "torchrun", "fanout": "srun",
         "modules": ("StdEnv/2020", "gcc/11.3.0", "python/3.8.10", "cuda/11.7", "nccl/2.12.12")},
        {"scheduler": "slurm", "python": "3.8.10", "launchers": ("torchrun", "mpirun")},
    ),
    "della@2023": (
        {"gpus_per_node": 2},
        {"launcher": "srun", "cpus_per_task": 8, "mem": 32 * 1024, "conda": "torch-env",
         "modules": ("anaconda3/2021.5",)},
        {"scheduler": "slurm", "fill_node": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
def test_a_job_at_a_site_is_what_its_centre_documents(tmp_path, name):
    flags, job, facts = FACTS[name]
    resolved = ask(tmp_path, site=name, **flags)
    assert {key: getattr(resolved.spec, key) for key in job} == job
    assert {key: getattr(resolved.site, key) for key in facts} == facts


def test_what_belongs_to_one_kind_of_launch_or_node_is_in_its_table(tmp_path):
    sites = {name: find_site(name, {}, tmp_path) for name in NAMES}
    assert {n for n, s in sites.items() if s.node.gpus != 4} == {
        *("slurm", "pbs", "local", "aurora", "lumi", "frontier", "nibi", "della", "della@2023"),
    }
    assert (
        " ".join(sites["sockeye"].mpi.flags)
        == "-bind-to none -map-by :OVERSUBSCRIBE -mca pml ob1 -mca btl ^openib"
    )
    eap, olivia = sites["eap"], sites["olivia"]
    assert (eap.pbs.select, eap.pbs.place) == ("sales_op=blanca", "scatter")
    assert (eap.node.arch, eap.node.login_arch, eap.node.interface) == ("aarch64", "x86_64", "hsn0")
    assert any("aws-ofi-nccl-1.14.0" in path for path in eap.paths["LD_LIBRARY_PATH"])
    assert any("nccl-2.26.2" in path for path in eap.paths["LD_LIBRARY_PATH"])
    assert (olivia.containers.torchrun, olivia.containers.runtime) == ("/usr/local/bin/torchrun", "apptainer")
    assert (olivia.node.memory, olivia.node.arch) == ("768G", "aarch64")
    assert {n for n, s in sites.items() if s.slurm.gpus == "gres"} == {"della", "della@2023", "roihu"}


@pytest.mark.parametrize(
    ("shape", "whole"),
    [
        ({"gpus_per_node": 8, "nodes": 2}, True),
        ({"gpus_per_node": 8, "cpus_per_task": 4}, False),  # other jobs may have some of the cores
        ({"gpus_per_node": 4}, False),
        ({"gpus_per_node": 8, "nproc_per_node": 4, "cpus_per_task": 14}, False),
        ({"queue": "small"}, False),
    ],
)
def test_each_rank_runs_on_the_cores_next_to_its_gpu_only_where_a_job_has_the_whole_node(
    tmp_path, shape, whole
):
    job = ask(tmp_path, site="lumi", account="a", launcher="srun", **shape)
    masks = job.site.masks_of(job.spec)
    assert bool(masks) == whole
    assert f"--cpu-bind=mask_cpu:{','.join(masks)} " in render(job.spec, job.site, None) or not whole
    cores = [core for mask in masks for core in range(64) if int(mask, 16) >> core & 1]
    assert (
        sorted(cores) == [core for core in range(64) if core % 8] * whole
    )  # each core once; of eight one is taken


def test_the_network_plugin_is_demanded_only_across_nodes(tmp_path):
    assert ask(tmp_path, site="eap", gpus_per_node=4).spec.env == {}
    assert ask(tmp_path, site="eap", gpus_per_node=4, nodes=2).spec.env == {"NCCL_NET": "AWS Libfabric"}


def test_the_first_place_that_has_a_profile_wins(tmp_path):
    env = {"RANKUP_SITES": f"{tmp_path}/a:{tmp_path}/b", "XDG_CONFIG_HOME": f"{tmp_path}/config"}
    where = places(env, tmp_path)
    own = [place for place in where if place.is_relative_to(tmp_path)]
    assert [str(place.relative_to(tmp_path)) for place in own] == [
        ".rankup/sites", "a", "b", "config/rankup/sites",
    ]  # fmt: skip
    assert where[-1] == BUILT_IN
    for place in reversed(own):
        place.mkdir(parents=True)
        (place / "mine.toml").write_text(f'title = "{place}"\nscheduler = "slurm"\n')
        assert find_site("mine", env, tmp_path).title == str(place)


def test_without_xdg_a_users_profiles_are_below_home(tmp_path):
    assert tmp_path / ".config/rankup/sites" in places({"HOME": str(tmp_path)}, tmp_path / "project")


def test_a_profile_extends_another_and_overrides_keys(tmp_path, own):
    (own / "ours.toml").write_text('extends = "olivia"\n[node]\nmemory = "1T"\n[when.gpu]\nqueue = "vip"\n')
    site, olivia = find_site("ours", {}, tmp_path), find_site("olivia", {}, tmp_path)
    assert (site.name, site.node.memory, site.node.arch) == ("ours", "1T", "aarch64")
    assert site.when["gpu"] == {"queue": "vip", "cpus_per_task": 72}
    assert site.containers == olivia.containers


@pytest.mark.parametrize("name", ["fir", "nibi", "narval", "rorqual", "trillium"])
def test_the_notes_of_a_profile_are_added_to_those_of_what_it_extends(tmp_path, own, name):
    (own / "ours.toml").write_text(f'extends = "{name}"\nnotes = ["Ours."]\n')
    notes, above = find_site("ours", {}, tmp_path).notes, find_site(name, {}, tmp_path).notes
    assert notes == ("Ours.", *above)
    assert "(--venv)" in above[-1] and len(above) > 1


def test_a_project_may_adapt_a_built_in_profile_without_a_new_name(tmp_path, own):
    (own / "olivia.toml").write_text('extends = "olivia"\n[defaults]\naccount = "nn1234k"\n')
    assert ask(tmp_path, site="olivia").spec.account == "nn1234k"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("scheduler = \n", "bad-toml", "line 1"),
        ('schedular = "slurm"', "unknown-key", "did you mean 'scheduler'"),
        ('scheduler = "slrum"', "bad-profile", "did you mean 'slurm'"),
        ('title = "x"', "bad-profile", "scheduler"),
        ('name = "x"\nscheduler = "slurm"', "unknown-key", "'name'"),
        ('scheduler = "slurm"\n[node]\ngpu_count = 4', "unknown-key", "[node]"),
        ('scheduler = "slurm"\n[node]\nmemory = "lots"', "bad-profile", "'lots' is not a size"),
        ('scheduler = "slurm"\n[node]\ngpus = "four"', "bad-profile", "node.gpus"),
        ('scheduler = "slurm"\nnode = 4', "bad-profile", "[node]"),
        ('scheduler = "slurm"\n[when.gpus]\nqueue = "x"', "unknown-key", "did you mean 'gpu'"),
        ('scheduler = "slurm"\n[when.gpu]\nnodes = 2', "unknown-key", "'nodes'"),
        ('scheduler = "slurm"\n[defaults]\npartition = "x"', "unknown-key", "'partition'"),
        ('scheduler = "slurm"\n[defaults]\ntime = 90', "bad-time", "[defaults]"),
        ('scheduler = "slurm"\nrequired = ["acount"]', "unknown-key", "did you mean 'account'"),
        ('scheduler = "slurm"\noutput = "logs/%j"', "bad-profile", "SLURM ends the job without a word"),
        ('extends = "olivia"\nnotes = 1', "bad-profile", "notes"),
        ("extends = 1", "bad-profile", "extends"),
        ('extends = "x"', "unknown-site", "'x'"),
        ('extends = "wrong"', "unknown-site", "wrong"),
    ],
)
def test_a_wrong_profile_is_one_sentence_with_the_file_and_the_key(tmp_path, own, text, code, words):
    (own / "wrong.toml").write_text(text)
    with pytest.raises(RankupError) as caught:
        find_site("wrong", {}, tmp_path)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert str(own / "wrong.toml") in str(caught.value)


def test_a_wrong_value_is_blamed_on_the_file_that_says_it(tmp_path, own):
    (own / "base.toml").write_text('scheduler = "slurm"\n[node]\ncpus = "many"\n')
    (own / "top.toml").write_text('extends = "base"\n[node]\ngpus = 2\n')
    with pytest.raises(RankupError) as caught:
        find_site("top", {}, tmp_path)
    assert caught.value.context == str(own / "base.toml")


def test_profiles_that_extend_each_other_are_refused(tmp_path, own):
    (own / "a.toml").write_text('extends = "b"')
    (own / "b.toml").write_text('extends = "a"')
    with pytest.raises(RankupError, match="extends itself"):
        find_site("a", {}, tmp_path)


@pytest.mark.parametrize(
    "wrong", ['launcher = "mpirun"', 'mem = "4T"', "max_restarts = -1", 'array = "x"', "modules = [1]"]
)
def test_defaults_that_no_job_can_have_are_found_by_a_check(tmp_path, own, wrong):
    path = own / "x.toml"
    path.write_text(
        'scheduler = "slurm"\nlaunchers = ["torchrun"]\nrequired = ["time"]\n'
        f'[node]\ngpus = 4\nmemory = "1T"\n[when.gpu]\n{wrong}\n'
    )
    with pytest.raises(RankupError):
        check_defaults(load_site(path, []))


def test_one_wrong_profile_does_not_hide_the_others(tmp_path, own):
    (own / "wrong.toml").write_text("x")
    listed = {name: site for name, _, site in list_sites({}, tmp_path)}
    assert isinstance(listed.pop("wrong"), RankupError)
    assert listed.keys() >= NAMES
    assert not any(isinstance(listed[name], RankupError) for name in NAMES)


@pytest.mark.parametrize(
    ("asked", "variable", "programs", "name", "why"),
    [
        ("della", "olivia", ["sbatch"], "della", "flag"),
        (None, "olivia", ["qsub"], "olivia", "$RANKUP_SITE"),
        (None, "", ["sbatch"], "slurm", "sbatch is on PATH"),
        (None, "", ["qsub"], "pbs", "qsub is on PATH"),
        (None, "", [], "local", "no scheduler on PATH"),
    ],
)
def test_which_site_is_meant(tmp_path, asked, variable, programs, name, why):
    for program in programs:
        (tmp_path / program).touch(mode=0o755)
    env = {"PATH": str(tmp_path), "RANKUP_SITE": variable}
    site, origin = choose_site(asked, env, tmp_path)
    assert (site.name, origin) == (name, why)


@pytest.mark.parametrize(("word", "name"), [("UP", "slurm"), ("DOWN", "pbs")])
def test_a_slurm_that_is_installed_and_does_not_answer_hides_no_pbs(tmp_path, word, name):
    for program in ("sbatch", "qsub"):
        (tmp_path / program).touch(mode=0o755)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho 'Slurmctld(primary) at head is {word}'\n")
    (tmp_path / "scontrol").chmod(0o755)
    assert choose_site(None, {"PATH": str(tmp_path)}, tmp_path)[0].name == name
