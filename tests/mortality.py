"""Workers that die: at some operation everything they have stops, as after kill -9."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from headpond.call import Answer, Call
from headpond.jobs.database import Database
from headpond.jobs.objects import Entry, Objects, Stored
from headpond.jobs.roots import Roots
from headpond.testing.answering import AnsweringBackend

Result = TypeVar("Result")


class Death(BaseException):
    """The process is gone: nothing catches it, nothing cleans up."""


@dataclass
class Life:
    """So many operations are left; both before and after an operation it may end."""

    left: int

    def pass_on(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Death


class MortalDatabase(Database):
    """The database as a mortal sees it."""

    def __init__(self, database: Database, life: Life) -> None:
        self._immortal, self._life = database, life

    async def write(self, transaction: Callable[[Connection, float], Result]) -> Result:
        self._life.pass_on()
        result = await self._immortal.write(transaction)
        self._life.pass_on()
        return result

    async def read(self, transaction: Callable[[Connection, float], Result]) -> Result:
        self._life.pass_on()
        return await self._immortal.read(transaction)


class MortalObjects(Objects):
    """The object store as a mortal sees it."""

    def __init__(self, objects: Objects, life: Life) -> None:
        self._immortal, self._life = objects, life

    async def put(self, key: str, source: bytes | Path) -> Stored:
        self._life.pass_on()
        stored = await self._immortal.put(key, source)
        self._life.pass_on()
        return stored

    async def get(self, key: str) -> bytes:
        self._life.pass_on()
        return await self._immortal.get(key)

    async def download(self, key: str, path: Path) -> None:
        self._life.pass_on()
        await self._immortal.download(key, path)

    async def read(self, key: str) -> AsyncGenerator[bytes]:
        async for block in self._immortal.read(key):
            self._life.pass_on()
            yield block

    async def delete(self, key: str) -> None:
        self._life.pass_on()
        await self._immortal.delete(key)

    async def entries(self) -> list[Entry]:
        self._life.pass_on()
        return await self._immortal.entries()


class MortalRoots(Roots):
    """What a job's prefixes are to a mortal."""

    def __init__(self, roots: Roots, life: Life) -> None:
        self._immortal, self._life = roots, life

    def open(self, url: str, tenant: str, *, param: str) -> Objects:
        return MortalObjects(self._immortal.open(url, tenant, param=param), self._life)


@dataclass(kw_only=True)
class MortalBackend(AnsweringBackend):
    """The backend as a mortal sees it: what it was asked is computed, whoever hears it."""

    life: Life

    async def submit(self, call: Call) -> Answer:
        self.life.pass_on()
        answer = await super().submit(call)
        self.life.pass_on()
        return answer
