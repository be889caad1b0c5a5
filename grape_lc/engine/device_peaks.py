"""How many floating-point operations a second a device can do at most, by its data sheet.

Dense operations (no sparsity), in matrix units where there are any: what MFU is counted against.
The figures are those of NVIDIA's data sheets: A100 (2020), H100 and H200 Tensor Core GPU, L4, L40S,
T4. Where a sheet gives one with sparsity, it is halved. float32 is the plain figure, without
TensorFloat-32, which vLLM does not use unless told to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

MEASURE_PEAK = "grape_measure_peak"
"""Key of vLLM's ``additional_config``: on a CPU, measure the peak when the engine starts."""


class Peak(NamedTuple):
    """FLOP/s by dtype.

    words: all of them stand in the device's name. half: float16 and bfloat16. single: float32.
    no_bfloat16: a device older than that dtype.
    """

    words: frozenset[str]
    half: float
    single: float
    no_bfloat16: bool = False


_PEAKS = (
    Peak(frozenset({"A100"}), 312e12, 19.5e12),
    Peak(frozenset({"H100", "HBM3"}), 989.4e12, 67e12),
    Peak(frozenset({"H100", "PCIE"}), 756e12, 51e12),
    Peak(frozenset({"H200"}), 989.4e12, 67e12),
    Peak(frozenset({"L4"}), 121e12, 30.3e12),
    Peak(frozenset({"L40S"}), 362e12, 91.6e12),
    Peak(frozenset({"T4"}), 65e12, 8.1e12, no_bfloat16=True),
)
# A slice of a GPU has a part of its units, and boards with less power a lower clock.
_OTHERS = frozenset({"MIG", "NVL"})


def peak_flops(device: str, dtype: str) -> float | None:
    """Peak FLOP/s of one device, such as ``NVIDIA H200``; None where it is not known.

    dtype: ``float32``, ``float16`` or ``bfloat16``. Weights that are stored in fewer bits count as
    computed in this one.
    """
    words = set(re.split(r"[^A-Z0-9]+", device.upper()))
    if words & _OTHERS:
        return None
    for peak in _PEAKS:
        if peak.words <= words:
            by_dtype: Mapping[str, float] = {
                "float32": peak.single,
                "float16": peak.half,
                **({} if peak.no_bfloat16 else {"bfloat16": peak.half}),
            }
            return by_dtype.get(dtype)
    return None
