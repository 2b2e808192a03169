"""The image: what its file says, as no Docker runs where the tests do."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest

from charts import ROOT, at, pod_templates, ray_service

DOCKERFILE = ROOT / "docker/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions, continued lines joined, without comments."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest) for word, rest in pairs]


def wanted(extras: str) -> list[str]:
    """What `dependencies.py` makes of pyproject.toml."""
    script, project = str(ROOT / "docker/dependencies.py"), str(ROOT / "pyproject.toml")
    command = [sys.executable, script, project, extras]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def last_stage() -> list[tuple[str, str]]:
    """The instructions of the image itself."""
    found = instructions()
    start = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def test_bases_are_versions() -> None:
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    assert arguments["PYTHON"][0].isdigit()
    for word, rest in instructions():
        if word == "FROM":
            assert "latest" not in rest


def test_it_runs_as_the_user_that_the_chart_says() -> None:
    user = [rest for word, rest in last_stage() if word == "USER"][-1]
    pod = pod_templates(ray_service())["head"]
    context = at(pod, "spec.securityContext")
    assert user == f"{at(context, 'runAsUser')}:{at(context, 'runAsGroup')}"
    assert not [word for word, _ in last_stage() if word in ("ADD", "VOLUME")]


def test_what_it_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / "docker/Dockerfile.dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word != "COPY" or rest.startswith("--from="):
            continue
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source.rstrip('/').removeprefix('./')}" in ignored


def test_its_places_are_the_charts() -> None:
    pairs = " ".join(rest for word, rest in last_stage() if word == "ENV").split()
    told = dict(pair.split("=", 1) for pair in pairs)
    container = at(pod_templates(ray_service())["head"], "spec.containers.0")
    env = {str(variable["name"]): variable["value"] for variable in at(container, "env")}  # type: ignore[attr-defined]
    assert told.items() <= env.items()
    mounted = {str(mount["mountPath"]) for mount in at(container, "volumeMounts")}  # type: ignore[attr-defined]
    assert {told["HEADPOND_CACHE"], told["HOME"]} <= mounted
    work = [rest for word, rest in last_stage() if word == "WORKDIR"][-1]
    assert work == told["HEADPOND_HOME"]


def test_it_starts_a_config_that_is_there() -> None:
    command = [rest for word, rest in last_stage() if word == "CMD"][-1]
    assert (ROOT / json.loads(command)[1]).is_file()


def test_it_installs_what_the_project_says_and_its_own_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    found = set(wanted(arguments["EXTRAS"]))
    assert set(project["dependencies"]) <= found
    serve = project["optional-dependencies"]["serve"]
    assert {each for each in serve if not each.startswith("headpond[")} <= found
    assert not [one for one in found if one.startswith("headpond")]


def test_an_extra_that_is_none_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        wanted("server")


def test_versions_of_ray_agree() -> None:
    told = str(at(ray_service(), "spec.rayClusterConfig.rayVersion"))
    assert f"ray=={told}" in (ROOT / "requirements.lock").read_text().split()
