"""The recipes of a farm are well-formed, and their commands have options that exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml
from nojit.aot.cli.commands.build import command

from tests.aot.conftest import ROOT

FOLDER = ROOT / "examples/build_farm"


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def check_dask(words: list[str]) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    kind, *options = words
    {"scheduler": dask_scheduler, "worker": dask_worker}[kind].main.make_context(kind, options)


@pytest.mark.parametrize(("schema", "name"), [("github-workflows", "kernels.yaml"), ("compose-spec", "compose.yaml")])
def test_the_schema_of_each_kind_takes_the_recipe(schema: str, name: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs the extra test")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(FOLDER / name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_every_recipe_installs_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("Dockerfile", "kernels.yaml"))
    named = re.findall(r"pip install .*?\[([\w,]+)\]", text)
    assert len(named) == 2
    assert {extra for words in named for extra in words.split(",")} <= extras.keys()


def test_the_image_runs_a_worker() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    entry, words = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE))
    assert entry == ["dask"]
    check_dask(words)
    # no command runs as root
    assert text.index("USER builder") < text.index("ENTRYPOINT")


def test_the_containers_run_a_scheduler_and_workers() -> None:
    services = read("compose.yaml")["services"]
    for service in services.values():
        check_dask([re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in service["command"]])
    assert all(port.startswith("127.0.0.1:") for port in services["scheduler"]["ports"])


def test_the_workflow_builds() -> None:
    workflow = read("kernels.yaml")
    runs = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    builds = [line.strip() for run in runs for line in run.splitlines() if line.strip().startswith("nojit build")]
    assert len(builds) == 2
    for line in builds:
        words = shlex.split(re.sub(r"\$\{\{ matrix.arch \}\}", "sm_90", line))[2:]
        assert command.make_context("build", words).params["archs"] == ("sm_90",)
    assert {"NOJIT_CACHE", "NOJIT_CACHE_TRUST", "NOJIT_EXECUTOR"} == set(workflow["env"])


def test_what_nobody_reviewed_gets_no_key() -> None:
    workflow = read("kernels.yaml")
    for step in workflow["jobs"]["build"]["steps"]:
        if "secrets." in yaml.safe_dump(step):
            assert step["if"] == "github.event_name == 'push'"


@pytest.mark.parametrize("name", ["README.md", "Dockerfile", "compose.yaml", "kernels.yaml"])
def test_the_page_names_every_file(name: str) -> None:
    assert (FOLDER / name).is_file()
    assert name == "README.md" or f"[{name}]({name})" in (FOLDER / "README.md").read_text(encoding="utf-8")
