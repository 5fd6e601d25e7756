"""Images joined with their other captions, as far as these are believed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals
from pairsift.detect.contrast import Codes

WEIGHT = 2.0  # of a caption that is surely right, beside the image; from 1 to 4 the evidence hardly differed


def sibling_codes(codes: Codes, image_of: Ints, probability: Reals) -> Codes:
    """Return codes in which every pair's image is joined with the other captions of this image, its siblings.

        z_i  =  x_i + 2 sum_s p_s y_s    over the siblings s of pair i,    at unit length

    x and y are the vectors of images and captions in the space that they share. The pair's own caption is not part of
    z_i, and a sibling counts by its match probability p. So an image about which right captions say more is compared
    with its caption by all of this. Where p comes from evidence with siblings, the pair's caption had a part in it.

    Args:
        codes: Function from a fold and some pairs to unit vectors of their images and captions, (k, d) each.
        image_of: Image of each pair, (n,).
        probability: Probability that each pair matches, [0, 1], (n,).
    """
    image = np.unique(image_of, return_inverse=True)[1]
    weight = WEIGHT * torch.from_numpy(probability).float()

    def with_captions(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        wanted = np.unique(image[members])
        place = np.searchsorted(wanted, image)
        images, captions = codes(fold, members)
        own, at = captions.float() * weight[members, None], torch.from_numpy(place[members])
        total = torch.zeros(len(wanted), own.shape[1]).index_add_(0, at, own)
        rest = np.setdiff1d(np.flatnonzero(np.isin(image, wanted)), members)
        if len(rest):
            shares = codes(fold, rest)[1].float() * weight[rest, None]
            total.index_add_(0, torch.from_numpy(place[rest]), shares)
        vectors = images + total[at] - own
        return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-9), captions

    return with_captions
