"""Several processes' metrics as one exposition, told apart by a label."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


class _Merged:
    """A collector over families parsed from other processes' texts."""

    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return list(self._families.values())


def merge_expositions(texts: Mapping[str, str], label: str = "replica") -> str:
    """Merge expositions in the Prometheus text format.

    Args:
        texts: Each process's text by the value of its label.
        label: The label that tells them apart.
    """
    families: dict[str, Metric] = {}
    for name, text in texts.items():
        for family in text_string_to_metric_families(text):
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            for sample in family.samples:
                labels = {**sample.labels, label: name}
                merged.samples.append(sample._replace(labels=labels))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(families))
    return generate_latest(registry).decode()
