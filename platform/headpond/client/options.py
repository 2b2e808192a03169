"""What any call may be told besides what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class CallOptions(TypedDict, total=False):
    """Settings of one call; None is the same as absent, and leaves the client's own.

    Attributes:
        timeout_s: The longest wait for the next bytes.
        deadline_s: Time for the whole call, retries included; the server gets to know it.
        max_retries: How often the call is sent again.
        extra_headers: Sent besides the client's headers, and instead of those of the same name.
        extra_body: Fields that this client does not know.
    """

    timeout_s: float | None
    deadline_s: float | None
    max_retries: int | None
    extra_headers: Mapping[str, str] | None
    extra_body: Mapping[str, object] | None
