"""The names of a model's outputs, and which of them a request wants."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headpond.bundle.store import Bundle
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.vision.engine.options import Outputs
from headpond_workloads.vision.items import ClassScore, Selection

DEFAULT_TOP_K = 5

Activation = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection, read against the model.

    Attributes:
        indices: The outputs to choose among, ascending; None for all.
        top_k: The most to give.
    """

    indices: NDArray[np.intp] | None
    top_k: int


class Labels:
    """Names in the order of the outputs; several outputs may share one."""

    def __init__(self, names: tuple[str, ...], activation: Activation) -> None:
        """Keep names, and what makes scores of outputs."""
        self.names = names
        self._activation = activation
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            self._places[name].append(place)

    @classmethod
    def of(cls, bundle: Bundle, outputs: Outputs) -> Labels:
        """Read the labels of a bundle.

        Raises:
            BundleError: There is no such artifact, or a line of it is empty.
        """
        path = bundle.files.get(outputs.labels)
        if path is None:
            raise BundleError(
                f"there is no artifact {outputs.labels!r} with the labels", param="output.labels"
            )
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        if not names or not all(names):
            raise BundleError("every line of the labels must hold one", param="output.labels")
        return cls(names, outputs.activation)

    def choice(self, selection: Selection) -> Choice:
        """Read what a request wants.

        Raises:
            InvalidRequest: A label is none of the model's, or `top_k` is not from 1 to their
                number.
        """
        count = len(self.names)
        top_k = min(DEFAULT_TOP_K, count) if selection.top_k is None else selection.top_k
        if not 1 <= top_k <= count:
            raise InvalidRequest(
                f"top_k must be from 1 to the model's {count} labels", param="top_k"
            )
        if selection.labels is None:
            return Choice(None, top_k)
        wanted: set[int] = set()
        for at, label in enumerate(selection.labels):
            if label not in self._places:
                raise InvalidRequest("the model has no such label", param=f"labels.{at}")
            wanted.update(self._places[label])
        return Choice(np.asarray(sorted(wanted), np.intp), top_k)

    def best(self, logits: NDArray[np.float32], choice: Choice) -> tuple[ClassScore, ...]:
        """Return the best of the chosen classes, ties by index.

        Args:
            logits: One finite output for each label.
            choice: Which are wanted.
        """
        scores = self._scores(logits)
        places = np.arange(len(scores)) if choice.indices is None else choice.indices
        order = np.argsort(-scores[places], kind="stable")[: choice.top_k]
        return tuple(
            ClassScore(self.names[place], place, float(scores[place]))
            for place in places[order].tolist()
        )

    def _scores(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        wide = logits.astype(np.float64)
        if self._activation == "sigmoid":
            return np.asarray(0.5 * (1.0 + np.tanh(0.5 * wide)))
        powers = np.exp(wide - wide.max())
        return np.asarray(powers / powers.sum())
