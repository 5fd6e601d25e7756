"""What the tests of sentence encoders share."""

import pytest
import torch

import pairsift.encode.encoder


@pytest.fixture(scope="module")
def one_core():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def in_precision():
    """Make an encoder whose products are in bfloat16, or in float32."""

    def made(make, fast, *options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pairsift.encode.encoder, "bfloat16_pays", lambda: fast)
            encoder = make(*options)
            encoder.encode(["words"])  # the network may be loaded only now
            return encoder

    return made
