"""`headpond alias`: which versions a name stands for, and how a new one comes in.

The commands work on the platform that runs on this machine, or on the Ray cluster at
`--address`; its routers follow within a second or two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from headpond.cli.console import people, refusals, result_console
from headpond.cli.options import AsJson
from headpond.errors import InvalidRequest
from headpond.ray_env import apply_ray_env
from headpond.rollouts.guard import DEFAULT_GUARD, Guard, share
from headpond.rollouts.revision import Revision, ShadowPlan
from headpond.rollouts.tally import Tally

if TYPE_CHECKING:
    from headpond.rollouts.desk import AliasView, RolloutDesk

app = typer.Typer(no_args_is_help=True, help="Bring a new version in, and take it back.")

_NO_GUARD = "none"

Name = Annotated[str, typer.Argument(help="The name callers use.")]
Address = Annotated[
    str | None, typer.Option(help="The Ray cluster, HOST:PORT; else the one on this machine.")
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for a new application.", min=1.0)]


@app.command("list")
def list_aliases(*, address: Address = None, as_json: AsJson = False) -> None:
    """Show what every alias stands for, who is on trial, and how it does."""
    with _desk(address) as desk:
        views, idle = desk.views(), desk.idle()
    if as_json:
        plain = {"aliases": [view.plain() for view in views], "idle": idle}
        typer.echo(json.dumps(plain, indent=2))
        return
    table = Table("alias", "targets", "since", "by", "canary", "others", "copies", "why")
    for view in views:
        table.add_row(*_row(view))
    result_console().print(table)
    if idle:
        people.print(f"started by rollouts, needed by none: {', '.join(idle)}")


@app.command("set")
def set_alias(  # noqa: PLR0913 - an option each
    name: Name,
    target: Annotated[str, typer.Argument(help="An application, or NAME@VERSION of a bundle.")],
    *,
    canary: Annotated[
        str | None, typer.Option(help="Share of the calls, e.g. 10%; else all of them.")
    ] = None,
    guard: Annotated[
        str, typer.Option(help="When the canary is taken back; `none` for never.")
    ] = DEFAULT_GUARD,
    shadow: Annotated[
        str | None, typer.Option(help="Share of the calls that are copied, e.g. 5%.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="By how much numbers of answers that agree may differ.", min=0.0)
    ] = 1e-3,
    bundle: Annotated[
        str | None, typer.Option(help="Start the version from this bundle, beside the first.")
    ] = None,
    timeout_s: Timeout = 600.0,
    address: Address = None,
) -> None:
    """Send an alias's calls, or a share of them, to a version."""
    with _desk(address) as desk:
        part = None if canary is None else share(canary, "canary")
        copies = None if shadow is None else share(shadow, "shadow")
        rule = Guard.parse(guard) if guard != _NO_GUARD else None
        if bundle is not None:
            people.print(f"{target}: starting; its fixtures come first")
            desk.start(name, target, bundle, timeout_s)
        found = desk.application(target)
        plan = None
        if copies:
            plan = ShadowPlan(target=found, share=copies, tolerance=tolerance)
        watched = part is not None or plan is not None
        revision = desk.set(name, found, share=part, guard=rule if watched else None, shadow=plan)
        _tell(revision)


@app.command()
def promote(
    name: Name,
    *,
    remove_old: Annotated[
        bool, typer.Option("--remove-old", help="Take down what then has no traffic.")
    ] = False,
    address: Address = None,
) -> None:
    """Give the canary all of the traffic."""
    with _desk(address) as desk:
        _change(desk, name, desk.promote, remove=remove_old)


@app.command()
def rollback(
    name: Name,
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take down what then has no traffic.")
    ] = False,
    address: Address = None,
) -> None:
    """Return to what an alias was before its canary came."""
    with _desk(address) as desk:
        _change(desk, name, desk.rollback, remove=remove)


@app.command()
def reset(
    name: Name,
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take down what then has no traffic.")
    ] = False,
    address: Address = None,
) -> None:
    """Return to what the router's config says of an alias."""
    with _desk(address) as desk:
        _change(desk, name, desk.reset, remove=remove)


@app.command()
def remove(
    applications: Annotated[list[str], typer.Argument(help="As `list` names them.")],
    *,
    address: Address = None,
) -> None:
    """Take down applications that rollouts started and no alias needs."""
    with _desk(address) as desk:
        idle = desk.idle()
        busy = [name for name in applications if name not in idle]
        if busy:
            raise InvalidRequest(f"{busy[0]!r} is needed, or no rollout started it")
        _remove(desk, applications)


@contextmanager
def _desk(address: str | None) -> Iterator[RolloutDesk]:
    apply_ray_env()
    # A command has no event loop that runs all the while, which handles would need otherwise.
    os.environ["RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP"] = "1"
    # Ray reads its environment when it is imported.
    from headpond import local_ray  # noqa: PLC0415
    from headpond.rollouts.desk import RolloutDesk  # noqa: PLC0415

    with refusals():
        local_ray.join_ray(address)
        yield RolloutDesk.open()


def _change(
    desk: RolloutDesk, name: str, change: Callable[[str], Revision], *, remove: bool
) -> None:
    before = desk.view(name).targets
    revision = change(name)
    _tell(revision)
    if remove:
        _remove(desk, [app for app in before if app not in revision.targets()])


def _tell(revision: Revision) -> None:
    shown = _weights(revision.targets()) or "nothing"
    people.print(f"{revision.alias}: revision {revision.number}, {shown}")


def _remove(desk: RolloutDesk, apps: list[str]) -> None:
    for name in desk.remove(apps):
        people.print(f"{name}: removed, when what it runs is done")


def _row(view: AliasView) -> tuple[str, ...]:
    tip, seen = view.tip, view.seen
    if tip is None:
        return (view.alias, _weights(view.targets), "", "config", "", "", "", "")
    canary, others, copies = "", "", ""
    if seen is not None:
        canary, others = _side(seen.canary), _side(seen.others)
    if seen is not None and tip.shadow is not None:
        copies = f"{seen.agreed.agreed} of {seen.agreed.compared} agree"
    since = f"{tip.at:%Y-%m-%d %H:%M:%S}"
    return (
        view.alias,
        _weights(view.targets),
        since,
        tip.cause,
        canary,
        others,
        copies,
        tip.reason,
    )


def _side(tally: Tally) -> str:
    ttft_s = tally.quantile_s("ttft", 0.95)
    late = "-" if ttft_s is None else f"{ttft_s * 1000:.0f} ms"
    return f"{tally.ended - tally.failed} ok, {tally.failed} failed, ttft p95 {late}"


def _weights(weights: dict[str, float]) -> str:
    whole = sum(weights.values()) or 1.0
    return ", ".join(f"{app} {weight / whole:.0%}" for app, weight in weights.items())
