"""What an alias goes through: canaries, promotions, rollbacks, and another config."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headpond.errors import BundleError
from headpond.rollouts.changes import AliasState, effective
from headpond.rollouts.guard import Guard
from headpond.rollouts.log import Conflict, RolloutLog
from headpond.rollouts.revision import Revision, ShadowPlan
from headpond.testing.keys import MemoryKeys

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BASE = {"old": 100.0}


class Book:
    """One alias in a log, as a router with a config sees it."""

    def __init__(self, base: dict[str, float] | None = None) -> None:
        self.base = BASE if base is None else base
        self.log = RolloutLog(MemoryKeys())

    @property
    def state(self) -> AliasState:
        return AliasState(name="chat", base=self.base, revisions=self.log.revisions("chat"))

    @property
    def weights(self) -> dict[str, float]:
        return dict(effective({"chat": self.base}, self.log.tips())["chat"])

    def canary(self, target: str, share: float | None, **more: object) -> Revision:
        options: dict[str, object] = {"guard": None, "shadow": None, **more}
        return self.done(self.state.set(target, NOW, share=share, **options))  # type: ignore[arg-type]

    def promote(self) -> Revision:
        return self.done(self.state.promote(NOW))

    def rollback(self, **more: object) -> Revision:
        return self.done(self.state.rollback(NOW, **more))  # type: ignore[arg-type]

    def done(self, revision: Revision) -> Revision:
        self.log.append(revision)
        return revision


def test_a_canary_grows_is_promoted_and_taken_back_whole() -> None:
    book = Book()
    assert book.canary("new", 0.1).on_trial == "new"
    assert book.weights == {"old": 0.9, "new": pytest.approx(0.1)}
    book.canary("new", 0.5)
    assert book.weights == {"old": 0.5, "new": 0.5}
    assert book.promote().on_trial is None
    assert book.weights == {"new": 1.0}
    book.rollback()
    assert book.weights == BASE
    with pytest.raises(BundleError, match="is what the config says"):
        book.rollback()


def test_a_rollback_returns_to_the_version_that_was_promoted_before() -> None:
    book = Book()
    book.canary("second", 0.1)
    book.promote()
    book.canary("third", 0.2, guard=Guard.parse("error_rate=2%"))
    assert book.weights == {"second": 0.8, "third": 0.2}
    book.rollback(by_guard=True, reason="error_rate: many")
    assert book.weights == {"second": 1.0}
    assert book.state.tip is not None
    assert (book.state.tip.cause, book.state.tip.reason) == ("guard", "error_rate: many")
    book.rollback()
    assert book.weights == BASE


def test_a_rollback_brings_back_the_guard_of_the_canary_before() -> None:
    book = Book()
    guard = Guard.parse("error_rate=2%")
    book.canary("second", 0.1, guard=guard)
    book.canary("third", 0.1)
    assert book.weights == {"old": pytest.approx(0.81), "second": pytest.approx(0.09), "third": 0.1}
    assert book.rollback().guard == guard


def test_the_config_wins_when_it_changes_and_not_before() -> None:
    book = Book()
    book.canary("new", 0.1)
    assert book.state.overruled(NOW) is None
    book.base = {"other": 1.0}
    assert book.weights == {"other": 1.0}
    ended = book.state.overruled(NOW)
    assert ended is not None
    book.done(ended)
    assert (ended.cause, book.weights, book.state.overruled(NOW)) == ("config", book.base, None)
    with pytest.raises(BundleError, match="what the config says"):
        book.rollback()
    with pytest.raises(BundleError, match="has no canary"):
        book.promote()
    book.base = BASE
    assert book.weights == BASE, "an old canary must not come back with the old config"


def test_a_reset_returns_to_the_config() -> None:
    book = Book()
    book.canary("new", 0.1)
    book.promote()
    book.done(book.state.reset(NOW))
    assert book.weights == BASE


def test_an_alias_that_no_config_has_can_be_made() -> None:
    book = Book(base={})
    book.canary("new", None)
    tips = book.log.tips()
    assert effective({}, tips) == {"chat": {"new": 1.0}}
    assert effective({"chat": {"declared": 1.0}}, tips) == {"chat": {"declared": 1.0}}
    with pytest.raises(BundleError, match="no other target"):
        book.canary("new", 0.1)


def test_a_shadow_gets_copies_and_no_traffic() -> None:
    book = Book()
    plan = ShadowPlan(target="new", share=0.05, tolerance=0.01)
    assert book.canary("new", None, shadow=plan).on_trial is None
    assert book.weights == {"new": 0.0, "old": 100.0}
    book.rollback()
    assert book.weights == BASE


def test_two_who_change_an_alias_at_once_do_not_overwrite_each_other() -> None:
    book = Book()
    mine, theirs = (
        book.state.set("new", NOW, share=s, guard=None, shadow=None) for s in (0.1, 0.2)
    )
    book.done(mine)
    with pytest.raises(Conflict):
        book.done(theirs)
    assert book.weights["new"] == pytest.approx(0.1)


def test_a_log_keeps_the_last_revisions_and_what_was_started() -> None:
    book = Book()
    for number in range(100):
        book.canary(f"v{number}", None)
    kept = book.log.revisions("chat")
    assert [revision.number for revision in kept] == list(range(37, 101))
    assert book.weights == {"v99": 1.0}
    book.log.note_started("second")
    book.log.note_started("second")
    assert book.log.started() == ["second"]
    book.log.note_removed("second")
    assert book.log.started() == []


def test_aliases_with_slashes_are_told_apart() -> None:
    log = RolloutLog(MemoryKeys())
    for alias in ("org/chat", "org"):
        state = AliasState(name=alias, base={}, revisions=log.revisions(alias))
        log.append(state.set(f"{alias}-app", NOW, share=None, guard=None, shadow=None))
    assert {alias: tip.weights for alias, tip in log.tips().items()} == {
        "org/chat": {"org/chat-app": 1.0},
        "org": {"org-app": 1.0},
    }
    assert len(log.revisions("org")) == 1
