"""What says which tokens may come next: a grammar, or rules."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headpond.errors import HeadpondError

Bits = NDArray[np.int32]


class TokenGate(Protocol):
    """Follows one output, and says which tokens it may go on with."""

    def bits(self) -> Bits:
        """Return which tokens can follow, one bit each; none when none can."""
        ...

    def accept(self, token_id: int) -> None:
        """Go on by the token that was chosen."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the output can't go on, and is all that it has to be."""
        ...

    @property
    def refusal(self) -> HeadpondError | None:
        """Why it can't go on though it has to, if so."""
        ...
