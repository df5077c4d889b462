"""Context managers for modes."""

import pytest
import torch

from hebbseg import UNet
from hebbseg.networks.modes import running_statistics_kept


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_kept_and_the_output_is_the_same(training):
    network, x = UNet(features=(4, 6), dropout=0.0, seed=0).train(training), torch.rand(2, 3, 8, 8)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with running_statistics_kept(network):
        kept = network(x)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    torch.testing.assert_close(kept, network(x))
    assert (network.encoder.level0.norm1.num_batches_tracked == 1) == training


def test_tracking_resumes_after_an_error():
    network = UNet(features=(4, 6), seed=0)
    with pytest.raises(ValueError, match="stop"), running_statistics_kept(network):
        raise ValueError("stop")
    assert network.encoder.level0.norm1.track_running_stats
