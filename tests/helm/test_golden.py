"""Whole renders that somebody has read, line by line, with what they looked for.

The comments in `golden/` say why a line is as it is; documents are compared as a cluster reads
them. After a change that is meant, `python tests/helm/test_golden.py` prints what is rendered
now: bring the difference into the file, and read it again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest
import yaml

from charts import CASES, Node, at, render

GOLDEN = Path(__file__).parent / "golden"
READ_PODS = {"default": {"cpu"}, "fleet": {"chat-v1"}}
"""Cases, and the groups whose pods are kept: those of the others are made by the same lines."""


def reading(case: str) -> list[Node]:
    """Return what is rendered, shortened to what a person reads."""
    # What the platform generates, dashboards and alerts, has tests of its own.
    manifests = [each for each in render(CASES[case]) if each["kind"] != "PrometheusRule"]
    manifests = [each for each in manifests if "grafana_dashboard" not in str(each["metadata"])]
    for manifest in manifests:
        if manifest["kind"] == "RayService":
            spec = cast("Node", manifest["spec"])
            spec["serveConfigV2"] = yaml.safe_load(str(spec["serveConfigV2"]))
            for group in cast("list[Node]", at(spec, "rayClusterConfig.workerGroupSpecs")):
                if group["groupName"] not in READ_PODS[case]:
                    del group["template"]
        elif manifest["kind"] == "ConfigMap" and "smoke.py" in str(manifest["data"]):
            manifest["data"] = "files/smoke.py"
    return manifests


@pytest.mark.parametrize("case", READ_PODS)
def test_it_is_as_it_was_read(case: str) -> None:
    read = list(yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text(encoding="utf-8")))
    now = reading(case)
    assert [(m["kind"], at(m, "metadata.name")) for m in now] == [
        (m["kind"], at(m, "metadata.name")) for m in read
    ]
    for one, other in zip(now, read, strict=True):
        assert one == other


if __name__ == "__main__":
    yaml.safe_dump_all(reading(sys.argv[1]), sys.stdout, sort_keys=False, width=100)
