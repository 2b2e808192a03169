"""One benchmark of a formed-batch workload, from its arguments to its results file."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from formed import Contender, Run, Scenario, document, rounds, started
from harness import machine, versions, write_results


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What differs between the benchmarks.

    Attributes:
        name: Of the results file.
        about: The script's docstring.
        size: Of a scenario, where nobody says.
        unit: What a scenario has so many of.
        peers: Who runs beside ours, where nobody says.
        variants: Names of ours, where there are several.
        contenders: Makes them, of a folder, our variants and the peers.
        scenarios: Makes them, of a size.
        quality: Says how everybody's answers compare with one contender's.
        reference: That contender; the first of ours where it does not run.
        libraries: Whose versions are told.
        peer_versions: The versions of the peers.
        prepare: Called before peers are started.
    """

    name: str
    about: str | None
    size: int
    unit: str
    peers: str
    variants: Sequence[str] = ()
    contenders: Callable[[Path, Sequence[str], Sequence[str]], Sequence[Contender]]
    scenarios: Callable[[int], Sequence[Scenario]]
    quality: Callable[[Run, str], Mapping[str, str]]
    reference: str
    libraries: Sequence[str]
    peer_versions: Callable[[], Mapping[str, str]] = dict
    prepare: Callable[[], object] = dict

    def main(self) -> None:
        """Measure what the arguments say, and write the results file."""
        options = self._options()
        before = machine()
        peers = [name for name in options.peers.split(",") if name]
        if peers:
            self.prepare()
        run = Run()
        with tempfile.TemporaryDirectory() as folder:
            chosen = self.contenders(Path(folder), options.only.split(","), peers)
            with started(chosen, run) as up:
                rounds(up, self.scenarios(options.size), options.rounds, run)
        there = [each.name for each in chosen]
        ours = next(each.name for each in chosen if each.ours)
        reference = self.reference if self.reference in there else ours
        path = write_results(
            options.subject,
            document(
                run,
                chosen,
                before=before,
                rounds=options.rounds,
                versions=versions(*self.libraries) | (dict(self.peer_versions()) if peers else {}),
                quality=self.quality(run, reference),
            ),
        )
        print(path)

    def _options(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.about)
        parser.add_argument("--rounds", type=int, default=5)
        parser.add_argument(
            "--size", type=int, default=self.size, help=f"{self.unit} of a scenario"
        )
        parser.add_argument("--only", default=",".join(self.variants), help="variants, by comma")
        parser.add_argument("--peers", default=self.peers)
        parser.add_argument("--subject", default=self.name, help="name of the results file")
        return parser.parse_args()
