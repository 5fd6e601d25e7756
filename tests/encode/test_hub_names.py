import importlib

import numpy as np
import pytest
import transformers
from hub_helpers import save_tokenizer

from pairsift.encode import hub_names
from pairsift.encode.hub_names import HUB_MODELS, HubModel, sides
from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import text_encoder
from pairsift.errors import InputError


def test_a_word_stands_for_the_encoders_of_both_sides():
    options = EncodeOptions(encoders="siglip2")
    assert options.image_encoder == options.text_encoder == "hf:google/siglip2-base-patch16-224"
    assert options.encoders is None and options.shared_space
    assert options == EncodeOptions(image_encoder=options.image_encoder, text_encoder=options.text_encoder)
    assert options.replaced(cache="here").text_encoder == options.text_encoder
    joined = EncodeOptions(encoders="dinov2+e5")
    assert (joined.image_encoder, joined.text_encoder) == (HUB_MODELS["dinov2"].spec, HUB_MODELS["e5"].spec)
    assert not joined.shared_space
    assert sides("dinov2") == {"image_encoder": "hf:facebook/dinov2-base"}
    assert sides("multilingual") == {"text_encoder": HUB_MODELS["multilingual"].spec}
    assert sides("clip+muse") == {"image_encoder": HUB_MODELS["clip"].spec, "text_encoder": "muse"}
    assert EncodeOptions(encoders="e5", image_encoder="efficientnet-lite2").image_encoder == "efficientnet-lite2"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoders": "clop"}, "choose from clip, siglip2"),
        ({"encoders": "e5+dinov2"}, "join one of images and one of captions"),
        ({"encoders": "clip", "text_encoder": "muse"}, "leave --text-encoder out"),
    ],
)
def test_what_a_word_cannot_mean_is_one_line(values, message):
    with pytest.raises(InputError, match=message) as error:
        EncodeOptions(**values)
    assert "\n" not in str(error.value)


def test_the_prefix_of_a_model_stands_before_every_caption(tmp_path, monkeypatch):
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    plain = text_encoder(f"hf:{tmp_path}")
    monkeypatch.setitem(hub_names.PREFIXES, str(tmp_path), "a dog ")
    prefixed = text_encoder(f"hf:{tmp_path}")
    np.testing.assert_array_equal(prefixed.encode(["dog", "a"]), plain.encode(["a dog dog", "a dog a"]))
    assert prefixed.count_tokens(["dog"]) == plain.count_tokens(["a dog dog"])
    assert prefixed.key() != plain.key()


def test_a_list_says_which_models_are_here(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path))
    model = HubModel("some/model", "both", 8, "English", "MIT", (3, 1200))
    assert "fetched when named; needs pip install 'pairsift[hf]'" in model.summary()
    place = tmp_path / "models--some--model" / "snapshots" / "1"
    place.mkdir(parents=True)
    (place / "config.json").touch()
    assert model.summary() == (
        "images and captions in one space, 8-d, English, MIT, 3 images and 1,200 captions a second on two cores; "
        "some/model, here"
    )
