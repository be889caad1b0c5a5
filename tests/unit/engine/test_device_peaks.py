import pytest

from grape_lc.engine.device_peaks import peak_flops


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 312e12),
        ("NVIDIA A100 80GB PCIe", "float32", 19.5e12),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4e12),
        ("NVIDIA H100 PCIe", "float16", 756e12),
        ("NVIDIA H200", "bfloat16", 989.4e12),
        ("NVIDIA L4", "float16", 121e12),
        ("Tesla T4", "float16", 65e12),
    ],
)
def test_known_devices_have_the_peak_of_their_data_sheet(device: str, dtype: str, expected: float):
    assert peak_flops(device, dtype) == expected


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("Tesla T4", "bfloat16"),
        ("NVIDIA H200", "float64"),
        # Not what their names begin with.
        ("NVIDIA GH200 480GB", "bfloat16"),
        ("NVIDIA H200 NVL", "bfloat16"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bfloat16"),
        ("NVIDIA L40", "bfloat16"),
        ("cpu", "float32"),
        ("", "float32"),
    ],
)
def test_of_others_nothing_is_claimed(device: str, dtype: str):
    assert peak_flops(device, dtype) is None
