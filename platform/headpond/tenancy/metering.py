"""Calls within quotas: taken when a call is admitted, settled when it is over."""

from __future__ import annotations

from dataclasses import replace

from headpond.call import Answer, Backend, Call
from headpond.errors import HeadpondError
from headpond.tenancy.allowance import Allowance
from headpond.units import REQUESTS


async def submit(call: Call, allowance: Allowance, backend: Backend) -> Answer:
    """Submit a call to a backend, as far as the tenant's quotas allow.

    What the call may cost is taken when it is admitted. When it is over, or was closed, or
    has failed, what it did not come to is given back.

    Raises:
        RateLimited: A quota has less left than the call may cost; it was cancelled.
        HeadpondError: Whatever the backend refused it with.
    """
    if not allowance:
        return await backend.submit(call)
    allowance.choose(call.model)
    try:
        await allowance.take({REQUESTS: 1})
        # A router learns early what a stream may cost, and of a whole answer with its end. What
        # is stored can't be streamed; it is charged for when it is over.
        early = allowance.counts_work and call.store is None
        answer = await backend.submit(replace(call, stream=True) if early else call)
    except BaseException:
        allowance.release()
        raise
    answer.when_over(allowance.settle)
    try:
        await allowance.take(answer.accepted.work)
    except HeadpondError:
        allowance.refuse()
        await answer.close()
        raise
    except BaseException:
        await answer.close()
        raise
    return answer
