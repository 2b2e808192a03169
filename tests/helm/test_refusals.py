"""Values that can't work are refused at template time, with a sentence that says what to fix."""

from __future__ import annotations

import pytest

from charts import Node, refusal

POD: Node = {"resources": {"cpu": 2, "memory": "4Gi"}}
GPU: Node = {"resources": {"cpu": 8, "memory": "32Gi"}, "gpu": {"kind": "nvidia-l4"}}


def model(**fields: object) -> Node:
    """A model that is well, but for what is given."""
    return {
        "name": "m",
        "workload": "embedding",
        "bundle": "all-minilm-l6-v2",
        "pool": "cpu",
    } | fields


def models(*listed: Node) -> Node:
    """Values with some models."""
    return {"models": list(listed)}


def own(**fields: object) -> Node:
    """A model with pods of its own."""
    return {key: value for key, value in model(**fields).items() if key != "pool"}


BIG: Node = {"big": {"path": "/models/big", "workload": "generation", "staticBytes": "16GiB"}}
INCREMENTAL: Node = {"strategy": "NewClusterWithIncrementalUpgrade", "gatewayClassName": "istio"}

REFUSED: dict[str, tuple[Node, str]] = {
    "unknown workload": (
        models(model(workload="translation")),
        (
            'models[0] (m): there is no workload "translation": use one of diffusion, embedding, '
            "generation, reranking, speech, vision"
        ),
    ),
    "unknown bundle": (
        models(model(bundle="all-minilm")),
        'models[0] (m): there is no bundle "all-minilm": use one of the image\'s (all-minilm-l6-v2, ',
    ),
    "bundle of another workload": (
        models(model(bundle="tinysd-digits")),
        'bundle "tinysd-digits" is for diffusion, not embedding: set workload: diffusion, or choose',
    ),
    "two models with one alias": (
        models(model(alias="a"), model(name="n", alias="a")),
        'models[1] (n): alias "a" is m\'s already: give each model its own',
    ),
    "two models with one name": (models(model(), model(alias="b")), "models[0] has this name too"),
    "a name that is the platform's": (
        models(model(name="jobs")),
        "this name is the platform's own",
    ),
    "least above most": (
        models(model(autoscaling={"min_replicas": 4, "max_replicas": 2})),
        "models[0] (m): autoscaling.min_replicas 4 is more than max_replicas 2",
    ),
    "replicas and autoscaling": (
        models(model(replicas=2, autoscaling={"min_replicas": 1, "max_replicas": 2})),
        "models[0] (m) has both replicas and autoscaling: keep one",
    ),
    "pods: least above most": (
        {"pools": [{"name": "cpu", "minPods": 3, "maxPods": 2, "pods": POD}]},
        'pods of "cpu": at least 3 is more than at most 2: raise maxPods',
    ),
    "unknown pool": (
        models(model(pool="gpus")),
        'models[0] (m): there is no pool "gpus": use one of cpu, or add it to pools',
    ),
    "nowhere to run": (models(own()), "models[0] (m) has nowhere to run: name a pool (cpu)"),
    "pool and pods": (models(model(pods=POD)), "models[0] (m) has both pool and pods"),
    "one name for two groups": (
        models(own(name="cpu", pods=POD)),
        'two groups of pods are called "cpu"',
    ),
    "GPU memory below the plan": (
        {"bundles": BIG}
        | models(own(workload="generation", bundle="big", pods=GPU, args={"state_bytes": "8GiB"})),
        (
            'bundle "big" needs 24576 MiB (16384 MiB of weights, 8192 MiB for requests by '
            "args.state_bytes), and a nvidia-l4 has 21504 MiB after its reserve of 1024 MiB: lower "
            "args.state_bytes, or give it more memory"
        ),
    ),
    "GPU memory below a manifest's plan": (
        {
            "bundles": {
                "big": {
                    "manifest": {
                        "name": "big",
                        "version": "1.0.0",
                        "workload": "generation",
                        "artifacts": [],
                        "model": {"weight_bytes": 25 * 2**30},
                    }
                }
            }
        }
        | models(own(workload="generation", bundle="big", pods=GPU)),
        'bundle "big" needs 25856 MiB',
    ),
    "pod memory below the plan": (
        {"bundles": BIG} | models(model(workload="generation", bundle="big")),
        "and a pod has 4920 MiB after its reserve of 1224 MiB",
    ),
    "a bundle on a volume that is none": (
        {"bundles": BIG} | models(own(workload="generation", bundle="big", pods=GPU)),
        'bundle "big" lies at /models/big, and nothing is mounted there: add its volume',
    ),
    "a pool that is too small": (
        models(model(replicas=4, args={"threads": 3})),
        'pool "cpu": what is to run in it reserves 12.5 CPUs, and its pods have 9 at most',
    ),
    "more threads than CPUs": (
        models(model(args={"threads": 8})),
        "a replica reserves 8 CPUs (args.threads), and its pods have 3: it would never be placed",
    ),
    "a GPU for what has no use for it": (
        models(own(workload="speech", bundle="streaming-words", pods=GPU)),
        "speech runs on cpu, not on cuda: set args.device: cpu, or take pods without a GPU",
    ),
    "cuda without a GPU": (
        models(model(args={"device": "cuda"})),
        "args.device is cuda, and its pods have no GPU: give them gpu.kind",
    ),
    "unknown GPU": (
        models(own(pods={**GPU, "gpu": {"kind": "l4"}})),
        'gpu.kind "l4" is none of gpuKinds (nvidia-a100-80gb, ',
    ),
    "an alias for nobody": (
        {"router": {"aliases": {"chat": {"gone": 1}}}},
        'router.aliases.chat: there is no model "gone": use names of models (embedding-minilm, ',
    ),
    "weights of nothing": (
        {"router": {"aliases": {"chat": {"embedding-minilm": 0}}}},
        "router.aliases.chat: its weights sum to 0, so nobody would answer",
    ),
    "jobs without a database": (
        {"jobs": {"enabled": True, "store": {"objects": "s3://b/p"}}},
        "set jobs.store.database to postgresql://user@host:5432/db, or postgresql.enabled: true",
    ),
    "jobs in a file of one pod": (
        {"jobs": {"enabled": True, "store": {"objects": "s3://b/p", "database": "sqlite:///j.db"}}},
        "jobs are enabled without a database that all pods reach",
    ),
    "jobs without objects": (
        {"jobs": {"enabled": True}, "postgresql": {"enabled": True}},
        "jobs are enabled without an object store that all pods reach",
    ),
    "a long name": (
        {"fullnameOverride": "h" * 48},
        "KubeRay takes at most 47 of a-z, 0-9 and '-', a letter first: set fullnameOverride",
    ),
    "a name that begins with a digit": ({"fullnameOverride": "7b"}, "set fullnameOverride"),
    "in steps without the autoscaler": (
        {"upgrade": INCREMENTAL, "autoscaler": {"enabled": False}},
        "NewClusterWithIncrementalUpgrade needs Ray's autoscaler",
    ),
    "in steps without a Gateway": (
        {"upgrade": {"strategy": "NewClusterWithIncrementalUpgrade"}},
        "set upgrade.gatewayClassName",
    ),
    "a door that leads past the steps": (
        {
            "upgrade": INCREMENTAL,
            "keys": {"existingSecret": "s"},
            "ingress": {"enabled": True, "hosts": ["a.example"]},
        },
        "moves calls at KubeRay's own Gateway (demo-headpond-gateway), and ingress or httpRoute",
    ),
    "steps above the surge": (
        {"upgrade": INCREMENTAL | {"stepSizePercent": 60, "maxSurgePercent": 50}},
        "upgrade.stepSizePercent 60 is more than maxSurgePercent 50",
    ),
    "fault tolerance without Redis": (
        {"gcsFaultTolerance": {"enabled": True}},
        "set gcsFaultTolerance.redisAddress, or valkey.enabled: true",
    ),
    "Redis past the operator": (
        {"ray": {"env": {"RAY_REDIS_ADDRESS": "redis://r:6379"}}},
        "the variable RAY_REDIS_ADDRESS is KubeRay's to set: use gcsFaultTolerance",
    ),
    "a door without keys": (
        {"ingress": {"enabled": True, "hosts": ["a.example"]}},
        "a door to the outside is open without API keys: set keys.existingSecret or keys.hashed",
    ),
    "a picker that may not look": (
        {"inferencePools": {"enabled": True, "parentRefs": [{"name": "g"}]}},
        "an endpoint picker reads /metrics without a key: set settings.metrics_open: true",
    ),
    "an ingress to nowhere": ({"ingress": {"enabled": True}}, "ingress is enabled without hosts"),
    "settings twice": (
        {"settings": {"log_level": "info"}, "settingsSecret": {"name": "s"}},
        "there are both settings and settingsSecret: keep one",
    ),
    "keys twice": (
        {"keys": {"existingSecret": "s", "hashed": [{"key_sha256": "a" * 64}]}},
        "keys has both existingSecret and hashed: keep one",
    ),
    "clients, and a monitor from anywhere": (
        {
            "networkPolicy": {"clients": [{"podSelector": {}}]},
            "monitoring": {"podMonitor": {"enabled": True}},
        },
        "Prometheus asks too: set networkPolicy.monitoring to where it runs",
    ),
    "a monitor without a key": (
        {"keys": {"existingSecret": "s"}, "monitoring": {"podMonitor": {"enabled": True}}},
        "set monitoring.podMonitor.bearerTokenSecret, or settings.metrics_open: true",
    ),
}

MISTYPED: dict[str, tuple[Node, str]] = {
    "a key that is none": ({"modells": []}, "modells"),
    "an argument that is none": (models(model(args={"max_slot": 3})), "max_slot"),
    "an argument below its least": (models(model(args={"threads": 0})), "threads"),
    "a setting that is none": ({"settings": {"tenant": {}}}, "tenant"),
    "a level that is none": ({"settings": {"log_level": "loud"}}, "log_level"),
    "a key as it is": ({"keys": {"hashed": [{"key": "sk-1"}]}}, "key_sha256"),
    "no name": ({"models": [{"workload": "embedding", "bundle": "x"}]}, "name"),
    "a tag that moves": ({"image": {"cpu": {"tag": "latest"}}}, "tag"),
    "a size that is none": ({"cache": {"sizeLimit": "much"}}, "sizeLimit"),
    "a store's mistake": ({"postgresql": {"storage": {"sise": "1Gi"}}}, "sise"),
    "a bundle of half a description": ({"bundles": {"x": {"path": "/x"}}}, "bundles"),
}


@pytest.mark.parametrize(("values", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_with_what_to_fix(values: Node, told: str) -> None:
    said = refusal(values)
    assert "The values of headpond can't work:" in said
    assert told in said.replace('\\"', '"')


@pytest.mark.parametrize(("values", "field"), MISTYPED.values(), ids=MISTYPED.keys())
def test_a_mistyped_value_is_named(values: Node, field: str) -> None:
    said = refusal(values)
    assert "values don't meet the specifications of the schema" in said
    assert field in said


def test_all_problems_are_told_at_once() -> None:
    said = refusal(models(model(workload="x"), model(name="n", bundle="y")))
    assert said.count("\n- ") == 2
