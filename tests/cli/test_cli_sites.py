"""``rankup sites`` as a user meets it."""

from __future__ import annotations

import json

import pytest

from rankup.cli.app import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A project without profiles, a user without any, and a machine without a scheduler."""
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("RANKUP_SITES", "RANKUP_SITE", "LMOD_CMD", "MODULESHOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def call(capsys, *args):
    """Exit code, stdout and stderr of ``rankup sites ARGS``."""
    with pytest.raises(SystemExit) as ended:
        main(["sites", *args])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def program(folder, name, text):
    """A command on PATH that prints ``text``."""
    path = folder / "bin" / name
    path.write_text(f"#!/bin/bash\nprintf '%s' '{text}'\n")
    path.chmod(0o755)


def test_list_names_every_profile_with_its_file(capsys):
    code, out, _ = call(capsys, "list")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert {"cyclone", "olivia", "local"} <= rows.keys()
    assert rows["della"].endswith("della.toml")


def test_list_shows_a_wrong_profile_beside_the_others(capsys, folder):
    (folder / ".rankup" / "sites").mkdir(parents=True)
    (folder / ".rankup" / "sites" / "mine.toml").write_text("x")
    code, out, _ = call(capsys, "list", "--json")
    titles = {row["name"]: row["title"] for row in json.loads(out)}
    assert code == 0
    assert titles["mine"].startswith("invalid: ")
    assert titles["della"] == "Della, Princeton University"


def test_show_prints_the_files_comments_and_all(capsys, folder):
    (folder / ".rankup" / "sites").mkdir(parents=True)
    (folder / ".rankup" / "sites" / "mine.toml").write_text('# ours\nextends = "della"\n')
    code, out, _ = call(capsys, "show", "mine")
    assert code == 0
    assert out.index("# ours") < out.index("# Two GPUs of one node talk faster")


def test_show_as_json_is_the_merged_profile(capsys):
    code, out, _ = call(capsys, "show", "olivia", "--json")
    assert code == 0
    assert json.loads(out)["containers"]["torchrun"] == "/usr/local/bin/torchrun"


def test_an_unknown_site_is_an_error_with_a_guess(capsys):
    code, _, err = call(capsys, "show", "oliva")
    assert code == 2
    assert "did you mean 'olivia'" in err


def test_check_is_well_for_all_that_ships(capsys):
    code, out, _ = call(capsys, "check", "--json")
    assert code == 0
    assert {"clariden", "cyclone@2023", "slurm"} <= json.loads(out).keys()
    assert set(json.loads(out).values()) == {None}


def test_check_of_a_wrong_file_says_why_and_ends_with_1(capsys, folder):
    (folder / "mine.toml").write_text(
        'scheduler = "slurm"\n[node]\ngpus = 4\n[when.gpu]\nnproc_per_node = 8\n'
    )
    code, out, _ = call(capsys, "check", "mine.toml")
    assert code == 1
    assert "mine: invalid" in out
    assert "8 processes would share 4 GPUs" in out


def test_discover_writes_what_sinfo_says_and_never_over_another(capsys, folder):
    program(folder, "sinfo", "gpu*|2|64|512000|gpu:a100:4|1-00:00:00|1-infinite\n")
    code, out, _ = call(capsys, "discover", "mine")
    assert code == 0
    assert ".rankup/sites/mine.toml" in out
    assert call(capsys, "check", "mine")[0] == 0
    shown = json.loads(call(capsys, "show", "mine", "--json")[1])
    assert (shown["scheduler"], shown["node"]["gpus"], shown["when"]["gpu"]) == ("slurm", 4, {"queue": "gpu"})
    code, _, err = call(capsys, "discover", "mine")
    assert code == 2
    assert "[profile-exists]" in err


def test_check_of_one_site_prints_the_profile_that_is_right_here(capsys, folder):
    program(folder, "sinfo", "gpu*|2|64|512000|gpu:a100:8|1-00:00:00|1-infinite\n")
    (folder / "mine.toml").write_text('scheduler = "slurm"\n[node]\ngpus = 4\n[when.gpu]\nqueue = "gpus"\n')
    code, out, _ = call(capsys, "check", "mine.toml")
    assert code == 1
    assert "  node.gpus: 4 in the profile, 8 here\n" in out
    assert (
        'extends = "mine"\n\n[node]\ngpus = 8\n' in out and "# when.gpu.queue: no such queue here: gpu" in out
    )
    said = json.loads(call(capsys, "check", "mine.toml", "--json")[1])["here"]
    assert [one["place"] for one in said["differences"]] == ["node.gpus", "when.gpu.queue"]


def test_check_where_no_scheduler_answers_says_that_nothing_was_compared(capsys):
    code, out, _ = call(capsys, "check", "olivia")
    assert (code, out.splitlines()) == (
        0,
        ["olivia: OK", "not compared with a cluster: this machine has neither sinfo nor qstat"],
    )


def test_discover_writes_what_pbs_says(capsys, folder):
    program(folder, "qstat", "Queue: workq\n    queue_type = Execution\n    enabled = True\n")
    program(
        folder, "pbsnodes", "n1\n     resources_available.ncpus = 8\n     resources_available.ngpus = 2\n"
    )
    assert call(capsys, "discover", "mine", "--to", "elsewhere", "--json")[0] == 0
    assert 'scheduler = "pbs"' in (folder / "elsewhere" / "mine.toml").read_text()
    assert call(capsys, "check", "elsewhere/mine.toml")[0] == 0


def test_discover_on_a_machine_without_a_scheduler_describes_the_machine(capsys, folder):
    assert call(capsys, "discover", "mine")[0] == 0
    assert 'scheduler = "local"' in (folder / ".rankup" / "sites" / "mine.toml").read_text()


def test_a_scheduler_that_does_not_answer_leaves_nothing(capsys, folder):
    (folder / "bin" / "sinfo").write_text("#!/bin/bash\necho 'slurm_load_partitions: down' >&2; exit 1\n")
    (folder / "bin" / "sinfo").chmod(0o755)
    code, _, err = call(capsys, "discover", "mine")
    assert code == 1
    assert "slurm_load_partitions: down" in err
    assert not (folder / ".rankup").exists()


@pytest.mark.parametrize("name", ["../x", "-x", ".x"])
def test_a_name_that_is_a_path_is_refused(capsys, name):
    code, _, err = call(capsys, "discover", "--", name)
    assert code == 2
    assert "invalid name of a site" in err
