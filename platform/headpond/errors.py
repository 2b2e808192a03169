"""The error tree: each class carries the HTTP status and code it becomes.

HeadpondError
├── DeclarationError            a workload record that contradicts itself (import time)
├── BundleError                 a manifest, artifact or fixture that breaks the contract
├── InvalidRequest              400  the caller's input; names the field in `param`
│   ├── ContextLengthExceeded   400
│   ├── UnsupportedParameter    400
│   └── PayloadTooLarge         413
├── AuthenticationFailed        401
├── PermissionDenied            403
├── NotFound                    404
│   └── ModelNotFound           404
├── DeadlineExceeded            408  never repeated by clients
├── RateLimited                 429  the tenant's own limit
├── RequestCancelled            499  the caller went away
├── EngineFailed                500  the engine raised or produced NaN for this request
├── WorkerLost                  502  the replica died while it held the request
└── Overloaded                  503  our limit: try again after `retry_after_s`
    ├── OutOfMemory             503  the engine had not enough memory for it, even alone
    ├── StoreUnavailable        503  not all is in the vector store: a retry is safe
    └── NotReady                503  the bundle is loading, or its engine is stuck

The class docstring's first line is the default message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

_MOST_SHOWN = 100
"""So much of a name that nobody here knows is repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """The HTTP answer by which a client learned of an error.

    Attributes:
        status: What the answer said; 200 when the error came amid a stream.
        request_id: The server's `x-request-id`, for whoever looks into it.
        body: The answer's body, or the event's data.
        should_retry: Whether the server, or the status, allows another attempt.
    """

    status: int
    request_id: str | None
    body: str
    should_retry: bool


class HeadpondError(Exception):
    """The server failed to answer this request."""

    status: ClassVar[int] = 500
    code: ClassVar[str | None] = "internal_error"
    kind: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False

    received: Received | None = None
    """Set by clients only."""

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep a message for the caller, the field it is about, and when to try again.

        Args:
            message: What went wrong, for the caller's eyes; the class's own by default.
            param: Dotted path of the request field at fault.
            retry_after_s: Seconds until trying again makes sense.
        """
        self.message = message if message is not None else self.default_message()
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    @classmethod
    def default_message(cls) -> str:
        """Return the first line of the class docstring."""
        return (cls.__doc__ or cls.__name__).splitlines()[0]

    def named(self, param: str) -> Self:
        """Return the error, which names the field `param` where it named none."""
        if self.param is None:
            self.param = param
        return self

    def described(self) -> str:
        """Return the message for bodies without a place for the field: it leads."""
        if self.param is None or self.message.startswith(self.param):
            return self.message
        return f"{self.param}: {self.message}"

    def __str__(self) -> str:
        """Return the message; what a client was told leads with the field."""
        return self.message if self.received is None else self.described()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Cross process borders with every field (exceptions pickle only `args`)."""
        fields = (type(self), self.message, self.param, self.retry_after_s, self.received)
        return (_rebuild, fields)


def _rebuild(
    cls: type[HeadpondError],
    message: str,
    param: str | None,
    retry_after_s: float | None,
    received: Received | None,
) -> HeadpondError:
    error = cls(message, param=param, retry_after_s=retry_after_s)
    error.received = received
    return error


class DeclarationError(HeadpondError):
    """A workload record contradicts itself."""


class BundleError(HeadpondError):
    """A bundle breaks its own contract."""

    code = "bundle_invalid"


class InvalidRequest(HeadpondError):
    """The request is not valid."""

    status = 400
    code: ClassVar[str | None] = None
    kind = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    """The request is longer than the model's context."""

    code = "context_length_exceeded"


class UnsupportedParameter(InvalidRequest):
    """This model does not support the parameter."""

    code = "unsupported_parameter"


class PayloadTooLarge(InvalidRequest):
    """The request body is too large."""

    status = 413
    code = "request_too_large"


class AuthenticationFailed(HeadpondError):
    """The API key is missing or not valid."""

    status = 401
    code = "invalid_api_key"
    kind = "invalid_request_error"


class PermissionDenied(HeadpondError):
    """The API key does not allow this."""

    status = 403
    code = "permission_denied"
    kind = "invalid_request_error"


class NotFound(HeadpondError):
    """There is nothing at this address; /openapi.json lists what there is."""

    status = 404
    code = "not_found"
    kind = "invalid_request_error"


class ModelNotFound(NotFound):
    """The model does not exist."""

    code = "model_not_found"

    @classmethod
    def named(
        cls, model: str, problem: str = "does not exist; /v1/models lists those that do"
    ) -> Self:
        """Return what is wrong with one model; of a long name only the beginning is shown."""
        shown = model if len(model) <= _MOST_SHOWN else f"{model[:_MOST_SHOWN]}…"
        return cls(f"The model `{shown}` {problem}.", param="model")


class DeadlineExceeded(HeadpondError):
    """The deadline passed before the request was done."""

    status = 408
    code = "deadline_exceeded"
    kind = "timeout_error"


class RateLimited(HeadpondError):
    """The tenant's limit is reached."""

    status = 429
    code = "rate_limit_exceeded"
    kind = "rate_limit_error"
    retryable = True


class RequestCancelled(HeadpondError):
    """The caller went away."""

    status = 499
    code = "request_cancelled"
    kind = "invalid_request_error"


class EngineFailed(HeadpondError):
    """The engine could not compute this request."""

    code = "engine_failed"


class WorkerLost(HeadpondError):
    """The worker that held this request was lost."""

    status = 502
    code = "worker_lost"
    retryable = True


class Overloaded(HeadpondError):
    """The server has more work than it can finish in time."""

    status = 503
    code = "overloaded"
    retryable = True


class OutOfMemory(Overloaded):
    """The replica has not enough memory for this now."""

    code = "out_of_memory"


class StoreUnavailable(Overloaded):
    """The vector store did not take the vectors; sending the call again is safe."""

    code = "store_unavailable"


class NotReady(Overloaded):
    """The model is not ready."""

    code = "model_not_ready"
