"""`headpond bench`: a standard load for any workload, made from its record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from headpond import Client
from headpond.cli.bench_figures import Figures, figures
from headpond.cli.bench_load import Load, Target
from headpond.cli.bench_show import show
from headpond.cli.console import people
from headpond.cli.options import ApiKey, AsJson, BaseUrl, chosen, connected
from headpond.client.catalogue import LatencyBounds, Workload, WorkloadRoute
from headpond.client.config import ClientConfig
from headpond.errors import HeadpondError

_RATES = "0.25,0.5,0.75,1,1.5,2"
_POST = "POST"


def bench(  # noqa: PLR0913 - an option each
    workload: Annotated[str, typer.Argument(help="Its name, as /v1/workloads lists it.")],
    *,
    model: Annotated[str | None, typer.Option(help="Its name.")] = None,
    route: Annotated[str | None, typer.Option(help="Another route than the first.")] = None,
    bodies: Annotated[
        Path | None,
        typer.Option(help="JSON lines, a body each, instead of the example.", exists=True),
    ] = None,
    rates: Annotated[str, typer.Option(help="Multiples of the capacity, by comma.")] = _RATES,
    capacity: Annotated[
        float | None, typer.Option(help="Calls a second; measured if not said.", min=0.001)
    ] = None,
    callers: Annotated[int, typer.Option(help="That measure the capacity.", min=1)] = 8,
    seconds: Annotated[float, typer.Option(help="How long calls come, each time.", min=0.1)] = 10.0,
    patience_s: Annotated[float, typer.Option(help="How long callers wait.", min=0.1)] = 60.0,
    deadline_s: Annotated[
        float | None, typer.Option(help="What the server is told of that.", min=0.001)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the times at which calls come.")] = 0,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Put a workload under load: goodput, phases, and where it saturates.

    Calls come by a Poisson process, whatever became of those before, and are not sent again.
    """
    multiples = _numbers(rates)
    with connected(base_url, api_key) as client:
        subject = _subject(client, workload, model, route, bodies)
        url, key = ClientConfig.locate(base_url, api_key)
        target = Target(
            config=ClientConfig(base_url=url, api_key=key),
            path=subject.route.path,
            bodies=subject.bodies,
            patience_s=patience_s,
            deadline_s=deadline_s,
        )
        run = _Run(target, subject, seconds, seed)
        reached, found = asyncio.run(run.all(multiples, capacity, callers))
    if not as_json:
        show(found, subject.unit, streamed=subject.streamed)
        return
    report = {
        "workload": workload,
        "model": subject.model,
        "route": subject.route.path,
        "unit": subject.unit,
        "bounds": subject.bounds.model_dump(),
        "capacity_s": round(reached, 3),
        "seconds": seconds,
        "rates": [asdict(each) for each in found],
    }
    typer.echo(json.dumps(report))


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """What is put under load, as the server's own record has it."""

    model: str
    route: WorkloadRoute
    bodies: Sequence[bytes]
    streamed: bool
    unit: str
    bounds: LatencyBounds


def _subject(
    client: Client, workload: str, model: str | None, path: str | None, bodies: Path | None
) -> _Subject:
    records = {each.name: each for each in client.workloads()}
    if workload not in records:
        raise typer.BadParameter(f"the server has {', '.join(records) or 'none'}")
    record = records[workload]
    name = chosen(client, workload, model)
    route = _route(record, path)
    rate = record.throughput[0] if record.throughput else None
    bounds = LatencyBounds() if rate is None else rate.bounds
    streamed = route.chunk is not None and (bounds.first_output_s or bounds.gap_s) is not None
    given = [route.example] if bodies is None else _lines(bodies)
    more = {"model": name, **({"stream": True} if streamed else {})}
    return _Subject(
        model=name,
        route=route,
        bodies=[json.dumps({**body, **more}).encode() for body in given],
        streamed=streamed,
        unit="work" if rate is None else rate.unit,
        bounds=bounds,
    )


def _route(record: Workload, path: str | None) -> WorkloadRoute:
    routes = [each for each in record.routes if each.method == _POST and "{" not in each.path]
    for route in routes:
        if path in (None, route.path):
            return route
    listed = ", ".join(each.path for each in routes) or "none"
    raise typer.BadParameter(f"the workload has {listed}", param_hint="--route")


def _lines(path: Path) -> list[dict[str, object]]:
    try:
        found = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except ValueError:
        found = []
    if not found or not all(isinstance(each, dict) for each in found):
        raise typer.BadParameter("must hold a JSON object a line", param_hint="--bodies")
    return found


def _numbers(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) <= 0:
        raise typer.BadParameter("must be numbers above 0, by comma", param_hint="--rates")
    return found


@dataclass(frozen=True)
class _Run:
    """The load itself."""

    target: Target
    subject: _Subject
    seconds: float
    seed: int

    async def all(
        self, multiples: Sequence[float], capacity: float | None, callers: int
    ) -> tuple[float, list[Figures]]:
        """Return the capacity, and what each multiple of it came to."""
        async with Load(self.target) as load:
            first = await load.one()
            if first.error is not None:
                raise HeadpondError(f"The first call failed: {first.error}")
            reached = capacity or await self._capacity(load, callers)
            people.print(f"capacity {reached:.2f} calls/s", highlight=False)
            found = []
            for number, multiple in enumerate(multiples):
                rate = multiple * reached
                people.print(f"[dim]{multiple:g}x: {rate:.2f} calls/s[/dim]", highlight=False)
                seen = await load.open(rate, self.seconds, self.seed + number)
                found.append(figures(seen, self.seconds, self.subject.bounds, self.subject.unit))
            return reached, found

    async def _capacity(self, load: Load, callers: int) -> float:
        began_s = time.perf_counter()
        seen = await load.closed(callers, self.seconds)
        answered = [each for each in seen if each.error is None]
        if not answered:
            raise HeadpondError(f"No call was answered: {seen[0].error}")
        return len(answered) / (time.perf_counter() - began_s)
