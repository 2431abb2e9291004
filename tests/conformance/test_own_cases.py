"""Every case of our own: verdict, kind, place, exception class, raise_exception=False and warnings are as stated."""

from __future__ import annotations

import pytest
import torch
from conformance.judge import complaints
from own_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_as_stated(case):
    if case.needs == "mkldnn" and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no mkldnn")
    assert complaints(case) == []
