"""`helm test`: the service is ready, lists what the values say, and answers a call of each.

Usage: smoke.py SECONDS ALIAS...; `HEADPOND_BASE_URL` and `HEADPOND_API_KEY` say where.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import httpx2

from headpond.registry import workloads

_POLL_S = 2.0
_CALL_TIMEOUT_S = 120.0


def main(patience_s: float, aliases: Sequence[str]) -> int:
    """Return 0 when every alias answers its workload's example."""
    key = os.environ.get("HEADPOND_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(
        base_url=os.environ["HEADPOND_BASE_URL"], headers=headers, timeout=_CALL_TIMEOUT_S
    ) as http:
        if (reason := _wait_ready(http, time.monotonic() + patience_s)) is not None:
            print(f"not ready after {patience_s:.0f} s: {reason}")
            return 1
        listed = http.get("/v1/models").raise_for_status().json()["data"]
        served = {model["id"]: model["workload"] for model in listed}
        failures = [alias for alias in aliases if not _answers(http, alias, served)]
    return 1 if failures else 0


def _wait_ready(http: httpx2.Client, until: float) -> str | None:
    """Return None once every model is ready, or what is missing when time is over."""
    reason = "no time"
    while time.monotonic() < until:
        try:
            answer = http.get("/readyz", timeout=5)
        except httpx2.HTTPError as error:
            reason = type(error).__name__
        else:
            if answer.status_code == httpx2.codes.OK:
                return None
            reason = answer.text
        time.sleep(_POLL_S)
    return reason


def _answers(http: httpx2.Client, alias: str, served: dict[str, str]) -> bool:
    workload = served.get(alias)
    if workload is None:
        print(f"{alias}: not served; there are {', '.join(sorted(served)) or 'no models'}")
        return False
    route = workloads()[workload].routes[0]
    answer = http.post(route.path, json={**route.example, "model": alias})
    print(f"{alias}: {route.path} {answer.status_code}")
    if answer.status_code != httpx2.codes.OK:
        print(answer.text)
    return answer.status_code == httpx2.codes.OK


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
