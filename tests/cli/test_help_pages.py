"""Pages of help: groups, examples and widths; click's own errors in our form."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from rankup.cli.app import COMMANDS, CONTEXT_SETTINGS, load_command, main
from rankup.cli.output.help import EXAMPLES, help_page, option_groups

NAMES = [name for group in COMMANDS.values() for name in group]


def pages():
    """(path, click command, its context) of every command and of every group's own commands."""
    for name in NAMES:
        command = load_command(name)
        context = command.make_context(f"rankup {name}", [], resilient_parsing=True, **CONTEXT_SETTINGS)
        yield name, command, context
        for sub, child in getattr(command, "commands", {}).items():
            yield f"{name} {sub}", child, child.make_context(sub, [], parent=context, resilient_parsing=True)


def test_every_command_has_examples_and_every_example_has_a_command():
    assert sorted(EXAMPLES) == sorted(path for path, _, _ in pages())


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line in examples])
def test_an_example_is_a_command_line_that_is_taken(line):
    words = shlex.split(line.partition(" > ")[0])
    name, *args = words[words.index("rankup") + 1 :]
    command = load_command(name)
    while args and args[0] in getattr(command, "commands", {}):
        command = command.commands[args.pop(0)]
    with command.make_context(f"rankup {name}", args) as context:  # raises for an option that is unknown
        assert context.params or name in ("world", "mcp")


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 200])
def test_a_page_keeps_to_the_width_and_says_all_options(width):
    for path, command, context in pages():
        text = help_page(command, context, width=width, plain=True)
        examples = {*EXAMPLES[path]}
        long = [line for line in text.splitlines() if len(line) > width and line.strip() not in examples]
        assert not long, path
        assert text.startswith(f"Usage: rankup {path}")
        for options in option_groups(command, context).values():
            for option in options:
                assert re.search(rf"^  .*{re.escape(option.opts[0])}\b", text, re.MULTILINE), (
                    path,
                    option.opts,
                )
                assert option.help or option.name == "help", (path, option.opts)


def test_plain_pages_have_no_control_characters():
    for _, command, context in pages():
        assert "\x1b" not in help_page(command, context, width=80, plain=True)


def test_options_of_a_group_are_below_its_heading():
    command = load_command("train")
    with command.make_context("rankup train", [], resilient_parsing=True) as context:
        text = help_page(command, context, width=80, plain=True)
    optimizer = text.partition("\nOptimizer:\n")[2].partition("\n\n")[0]
    assert "--lr LR" in optimizer
    assert "--epochs" not in optimizer


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            ["run", "--nproc-per-nod", "2"],
            "unknown-option: `rankup run` has no option --nproc-per-nod; did you mean",
        ),
        (
            ["snapshots", "list", "--jsn", "x"],
            "unknown-option: `rankup snapshots list` has no option --jsn; did you mean --json?",
        ),
        (
            ["snapshots", "export", "bert", "--out", "m.safetensors"],
            "unknown-option: `rankup snapshots export` has no option --out: OUT is given alone",
        ),
        (["resume"], "missing-argument: `rankup resume` requires RUN"),
        (["verify", "--kills", "few", "a.py"], "invalid-value: --kills must be a valid integer"),
        (["verify", "--steps", "1", "a.py"], "invalid-value: --steps must be greater than or equal to 2"),
        (["logs", "--rank"], "missing-value: --rank of `rankup logs` takes a value"),
        (["logs", "--follow=3"], "missing-value: --follow of `rankup logs` takes no value"),
        (["status", "one", "two"], "unexpected-argument: `rankup status` does not take the argument 'two'"),
        (
            ["snapshots", "lst"],
            "unknown-command: `rankup snapshots` has no command 'lst'; did you mean list?",
        ),
        (["sites"], "missing-command: `rankup sites` requires a command"),
        (["completion", "tcsh"], "unknown-shell: unknown shell 'tcsh'"),
    ],
)
def test_clicks_errors_are_ours(capfd, args, error):
    with pytest.raises(SystemExit) as ended:
        main(args)
    out, err = capfd.readouterr()
    code, _, message = error.partition(": ")
    assert (ended.value.code, out) == (2, "")
    first, hint = err.splitlines()
    assert first.startswith(f"error: {message}")
    assert first.endswith(f"[{code}]")
    assert hint.startswith("  hint:  ")


def test_clicks_errors_are_json_if_json_is_the_commands_own_option(capfd):
    with pytest.raises(SystemExit):
        main(["verify", "--json", "--nonsense", "a.py"])
    assert json.loads(capfd.readouterr().out)["error"] == "unknown-option"
    with pytest.raises(SystemExit):
        main(["verify", "--nonsense", "a.py", "--json"])
    out, err = capfd.readouterr()
    assert out == ""
    assert "unknown-option" in err
