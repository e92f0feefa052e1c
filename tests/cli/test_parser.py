"""What is typed by habit, from other tools, and is not so here: each answer is a paragraph that says what to type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway.apps.cli import COMMANDS, COMMANDS_ELSEWHERE, GROUPS

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("train mlp iris --epochs 5", "Settings have no dashes: epochs=5."),
        ("train mlp iris --batch-size=5", "Settings have no dashes: batch_size=5."),
        ("quantize r --out q", "has no option --out: OUT is typed without it, as in `cutaway quantize RUN OUT "),
        ("prepare d --out=s", "has no option --out: OUT is typed without it, as in `cutaway prepare DATA OUT "),
        ("plan mlp iris --out p", "cutaway plan has no option --out. See `cutaway plan --help`."),
        ("predict r x --beams 3", "cutaway predict has no option --beams: it is now --num-beams."),
        ("train mlp iris clip=1", "clip is now grad_clip: `cutaway train --help grad_clip` has its values."),
        ("train mlp iris --ouput x", "cutaway train has no option --ouput. Similar: --out."),
        ("train --resume", "--resume needs a value: cutaway train --resume RUN."),
        ("generate runs/x --temprature 1", "Similar: --temperature."),
        ("generate runs/x --count many", "Invalid --count many: must be an integer."),
        ("predict", "cutaway predict needs RUN, INPUT."),
        ("report runs/x y", "cutaway report does not take 'y'."),
        ("show", "Missing model"),
        ("convert a b --to pytroch", "must be one of torchvision, huggingface, diffusers, cutaway, word2vec."),
        ("train mlp iris --json=x", "--json takes no value: cutaway train --json."),
        ("serve r --port", "--port needs a value: cutaway serve --port "),
        ("predict r x --xyzzy", "cutaway predict has no option --xyzzy."),
        ("--halp", "cutaway has no option --halp. Similar: `cutaway --help`."),
        ("completion", "use `cutaway --print-completion bash`"),
        ("list tabel", "Similar: table."),
        ("list trasnformer", "Similar: transformer"),
        ("show resnet8", "Similar: resnet18"),
        ("--print-completion bsh", "Similar: bash"),
        ("onnx runs/x", "There is no command 'onnx': use `cutaway export`."),
        ("trian", "Similar: train."),
        ("train mlp iris lr = 0.1", "Settings are written without spaces around the equals sign: lr=0.1."),
        ("check mlp iris lr= 0.1", "Settings are written without spaces around the equals sign: lr=0.1."),
        ("compare mlp iris lr =0.1", "Settings are written without spaces around the equals sign: lr=0.1."),
        ("show mlp hidden_dims = 64", "without spaces around the equals sign: hidden_dims=64."),
        ("inspect mlp --view network layer = head", "without spaces around the equals sign: layer=head."),
        ("plan mlp iris target=house price", "quote both: 'target=house price'."),
    ],
)
def test_a_typing_error_gets_a_suggestion(cli: Cli, typed: str, said: str) -> None:
    answer = cli(*typed.split())
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.said
    assert answer.said.startswith("cutaway: ")
    assert "usage:" not in answer.said
    assert len(answer.err.splitlines()) <= 4


def test_what_other_tools_call_it_is_here_by_another_name() -> None:
    assert {meant.split()[0] for meant in COMMANDS_ELSEWHERE.values()} <= {*COMMANDS, "--print-completion"}
    assert not set(COMMANDS_ELSEWHERE) & set(COMMANDS)


def test_help_of_a_command_is_its_help(cli: Cli) -> None:
    assert cli("help", "report").out == cli("report", "--help").out
    assert cli("help").out == cli("--help").out
    assert cli("help", "lr").out == cli("train", "--help", "lr").out


def test_the_overview_has_every_command_in_one_group_and_fits_a_terminal(cli: Cli) -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert max(map(len, cli("--help").out.splitlines())) <= 80


def test_a_run_is_named_where_the_folder_of_runs_was_given(cli: Cli) -> None:
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "run.json").write_text("{}")
    assert "These in it are: runs/a, runs/b." in cli("evaluate", "runs").said
    assert "cutaway inspect runs/a" in cli("show", "runs/a").said
