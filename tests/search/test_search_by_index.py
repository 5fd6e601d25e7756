"""Search where the vectors of the index have entries behind the global ones."""

import numpy as np
import pytest
import torch

from pairsift.encode.features import Items
from pairsift.match.pau import Pau, PauOptions
from pairsift.match.pcmepp import Pcmepp, PcmeppOptions
from pairsift.search.index import Captions, Index
from pairsift.search.search import Search

MATCHERS = {
    "pcmepp": lambda: Pcmepp(6, 5, PcmeppOptions(dim=4, hidden=6, spread=3.0)),
    "pau": lambda: Pau(6, 5, PauOptions(dim=4, hidden=6, rerank=3.0)),  # vague images are shorter in the index
}


@pytest.mark.parametrize("name", MATCHERS)
def test_images_like_an_image_are_ranked_by_the_cosine_of_the_global_vectors(name, tmp_path):
    torch.manual_seed(0)
    matcher = MATCHERS[name]().eval()
    for parameter in matcher.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        images = matcher.encode_images(Items(torch.randn(20, 6)))
        texts = matcher.encode_texts(Items(torch.randn(20, 5)))
    places = np.arange(20)
    captions = Captions(places, places, places, [""] * 20, [texts.indexed.half()])
    files = [f"{place}.jpg" for place in places]
    index = Index(files, places, [images.indexed.half()], {"folder": False, "images": False}, captions)
    search = Search(None, [matcher], index, str(tmp_path))
    cosine = (images.vectors @ images.vectors[7]).tolist()
    expected = [place for place in np.argsort(-np.array(cosine), kind="stable") if place != 7][:5]
    hits = search.by_pair(7, 5)
    assert [hit.pair for hit in hits] == expected
    assert [hit.score for hit in hits] == pytest.approx([cosine[place] for place in expected], abs=2e-3)
