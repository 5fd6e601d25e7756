"""The moving average of trust over epochs (GSC and CRCL)."""

from __future__ import annotations

import numpy as np

from pairsift.arrays import Floats


def moving_average(now: Floats, before: Floats, momentum: float) -> Floats:
    """Return momentum * now + (1 - momentum) * before (GSC Eq. 10), (n,).

    Args:
        now: This epoch's estimates, (n,).
        before: The averages up to the epoch before, (n,).
        momentum: Share of the new estimates, [0, 1]; with 1, earlier estimates have no influence.
    """
    return np.asarray(momentum * now + (1 - momentum) * before, np.float32)
