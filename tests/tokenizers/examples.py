"""How many examples Hypothesis draws here: few, and the same ones in every run.

GRAPE_LC_TOKEN_CASES sets another number, whose examples then differ from run to run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_ASKED = os.environ.get("GRAPE_LC_TOKEN_CASES")

FEW = settings(
    max_examples=int(_ASKED or 12),
    derandomize=_ASKED is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
RANDOMS = st.randoms(use_true_random=False)
