"""Parts of the flow that the golden fixtures do not show: start noise, ids, a quicker activation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from studio.models.flow import Flow
from studio.models.flow.layers import mish
from studio.models.flow.solver import start_noise


def test_start_noise_leaves_the_global_generators_alone():
    start_noise.cache_clear()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    start_noise()
    assert torch.equal(torch.rand(3), expected)


def test_ids_below_zero_count_as_zero(weights):
    flow = Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32)
    assert torch.equal(flow.embed_tokens(torch.tensor([-1, 4])), flow.embed_tokens(torch.tensor([0, 4])))


def test_quick_mish_is_mish_from_end_to_end_of_float32():
    x = torch.cat([torch.linspace(-100, 100, 20001), torch.tensor([-1e30, -0.0, 1e-30, 88.8, 1e30])])
    with torch.inference_mode():
        quick = mish(x)
    assert_close(quick, F.mish(x), atol=2e-6, rtol=2e-6)
