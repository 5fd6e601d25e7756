import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_helpers import WORDS, save_tokenizer
from PIL import Image

from clip_helpers import save_clip
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.encoder import cut_line
from pairsift.encode.parallel import map_in_threads
from pairsift.encode.registry import image_encoder, text_encoder
from pairsift.errors import InputError

transformers = pytest.importorskip("transformers")

CAPTIONS = ["a dog", "two children play in the red snow .", "dog", "runs , house on grass .", "unheard words"]
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 24,
    "patch_size": 8,
}
SIZE = {"height": 24, "width": 24}


def save_processor(folder: Path) -> None:
    name = "ViTImageProcessorPil" if hasattr(transformers, "ViTImageProcessorPil") else "ViTImageProcessor"
    getattr(transformers, name)(size=SIZE, image_mean=[0.5] * 3, image_std=[0.25] * 3).save_pretrained(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=4 + len(WORDS), max_position_embeddings=20, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(folder)  # has no pooler, as many on the hub
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(folder)
    save_processor(folder)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    text = {name: size for name, size in VISION.items() if name not in ("image_size", "patch_size")}
    text |= {"vocab_size": 40, "max_position_embeddings": 20, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    save_tokenizer(folder)
    save_processor(folder)
    return folder


def pictures(count: int = 3) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (30, 50, 3), np.uint8)) for _ in range(count)]


def pixels() -> torch.Tensor:
    arrays = [np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR), np.float32) for image in pictures()]
    return (torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25


def hidden_rows(folder: Path) -> list[torch.Tensor]:
    """The last layer's rows of each caption, one caption at a time."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        return [model(**tokenizer(one, return_tensors="pt")).last_hidden_state[0] for one in CAPTIONS]


def test_texts_of_a_language_model(bert):
    rows = hidden_rows(bert)
    vectors, tokens = text_encoder(f"hf:{bert}"), text_encoder(f"hf:{bert}", tokens=True)
    assert (vectors.dim, vectors.kind, tokens.kind) == (16, "vector", "tokens")
    np.testing.assert_allclose(vectors.encode(CAPTIONS), torch.stack([row.mean(0) for row in rows]), atol=1e-5)
    for got, wanted in zip(tokens.encode(CAPTIONS), rows, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert vectors.encode([]).shape == (0, 16)
    assert [len(row) for row in tokens.encode(["dog " * 900, "", "\ud800"])] == [20, 2, 3]


def test_captions_that_are_cut_are_counted(bert, tmp_path):
    long = ["dog " * 900, "a dog " * 30, "a dog", ""]
    encoder = text_encoder(f"hf:{bert}")
    assert encoder.limit == 20 and encoder.count_tokens(long).tolist() == [902, 62, 4, 2]
    assert cut_line(long, encoder).startswith("2 of 4 captions have more than the 20 tokens that hf:")
    assert cut_line(long[2:], encoder) is None
    assert cut_line(long, ClipPreprocessor(str(save_clip(tmp_path)))).startswith("2 of 4 captions have more than the ")


def test_keys_are_stable_and_follow_the_weights(bert, tmp_path):
    encoder = text_encoder(f"hf:{bert}")
    before = encoder.key()
    encoder.encode(CAPTIONS)
    torch.manual_seed(5)  # the pooler that the file lacks is random and must not count
    again = text_encoder(f"hf:{bert}")
    again.encode(CAPTIONS[:1])
    assert again.key() == before
    assert text_encoder(f"hf:{bert}", tokens=True).key() != before
    model = transformers.BertForMaskedLM.from_pretrained(bert)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[5, 0] += 1e-3
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert text_encoder(f"hf:{tmp_path}").key() != before


def test_threads_may_share_a_text_encoder(bert):
    encoder = text_encoder(f"hf:{bert}")
    wanted = encoder.encode(CAPTIONS)
    for got in map_in_threads(encoder.encode, [CAPTIONS] * 30):
        np.testing.assert_array_equal(got, wanted)
    assert threading.active_count() < 20


def test_images_of_a_vision_model(vit, monkeypatch):
    model = transformers.AutoModel.from_pretrained(vit).eval()
    with torch.inference_mode():
        wanted = model(pixel_values=pixels()).last_hidden_state
    whole, patches = image_encoder(f"hf:{vit}"), image_encoder(f"hf:{vit}", regions=True)
    batch = torch.stack([whole.prepare(image) for image in pictures()])
    torch.testing.assert_close(batch, pixels(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(whole.encode(batch), wanted[:, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(patches.encode(batch), wanted[:, 1:], atol=1e-5, rtol=1e-4)
    assert (whole.regions, patches.regions, patches.dim, whole.size) == (1, 9, 16, 24)
    assert whole.key() != patches.key()
    before = whole.key()
    text = (vit / "preprocessor_config.json").read_text()
    try:
        (vit / "preprocessor_config.json").write_text(text.replace("0.25", "0.5"))
        assert image_encoder(f"hf:{vit}").key() != before
    finally:
        (vit / "preprocessor_config.json").write_text(text)


def test_both_sides_of_a_clip(clip):
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    images, texts = image_encoder(f"hf:{clip}"), text_encoder(f"hf:{clip}")
    with torch.inference_mode():
        inputs = tokenizer(CAPTIONS, padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        both = model(pixel_values=pixels(), **inputs)
    batch = torch.stack([images.prepare(image) for image in pictures()])
    got = torch.nn.functional.normalize(images.encode(batch), dim=1)
    torch.testing.assert_close(got, both.image_embeds, atol=1e-5, rtol=1e-4)
    got = torch.nn.functional.normalize(torch.from_numpy(texts.encode(CAPTIONS)), dim=1)
    torch.testing.assert_close(got, both.text_embeds, atol=1e-5, rtol=1e-4)
    assert (images.dim, texts.dim) == (8, 8)
    patches, tokens = image_encoder(f"hf:{clip}", regions=True), text_encoder(f"hf:{clip}", tokens=True)
    assert patches.encode(batch).shape == (3, 9, 16)
    assert [row.shape for row in tokens.encode(CAPTIONS[:2])] == [(4, 16), (10, 16)]


def test_loading_keeps_transformers_talk_as_it_was(bert):
    talk = transformers.utils.logging
    before = talk.get_verbosity(), talk.is_progress_bar_enabled(), logging.getLogger().level
    text_encoder(f"hf:{bert}")
    assert (talk.get_verbosity(), talk.is_progress_bar_enabled(), logging.getLogger().level) == before


@pytest.mark.parametrize("spec", ["hf:nobody/nothing", "hf:/no/such/folder", "hf:"])
def test_what_cannot_be_reached_is_one_line(spec, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="folder") as caught:
        text_encoder(spec)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="folder"):
        image_encoder(spec)


def test_half_a_model_is_refused(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    for name in os.listdir(bert):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop(next(name for name in weights if "layer.1.output.dense.weight" in name))
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="lack"):
        text_encoder(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot be loaded"):
        text_encoder(f"hf:{tmp_path}")


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'pairsift\[hf\]'"):
        text_encoder("hf:nobody/nothing")


def test_roberta_counts_positions_from_behind_its_padding(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.RobertaConfig(
        vocab_size=4 + len(WORDS), max_position_embeddings=22, pad_token_id=0, type_vocab_size=1, **sizes
    )
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, length=None)
    encoder = text_encoder(f"hf:{tmp_path}", tokens=True)
    assert [len(rows) for rows in encoder.encode(["dog " * 100, "dog"])] == [21, 3]


@pytest.mark.parametrize("side", ["left", "right"])
def test_siglip_is_padded_on_the_side_of_its_tokenizer(tmp_path, side):
    torch.manual_seed(0)
    text = {name: size for name, size in VISION.items() if name not in ("image_size", "patch_size")}
    text |= {"vocab_size": 40, "max_position_embeddings": 20, "pad_token_id": 0, "projection_size": 16}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)
    transformers.SiglipModel(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, padding_side=side)
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.padding_side == side
    ids = tokenizer(CAPTIONS, padding="max_length", max_length=20, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        hidden = model.text_model(input_ids=ids)
    np.testing.assert_allclose(text_encoder(f"hf:{tmp_path}").encode(CAPTIONS), hidden.pooler_output, atol=1e-5)
    for rows, states, real in zip(
        text_encoder(f"hf:{tmp_path}", tokens=True).encode(CAPTIONS), hidden.last_hidden_state, ids != 0, strict=True
    ):
        np.testing.assert_allclose(rows, states[real], atol=1e-5)


def test_a_model_of_images_of_any_shape_is_refused_in_one_line(tmp_path):
    names = {name: size for name, size in VISION.items() if name != "image_size"}
    config = transformers.Siglip2VisionConfig(**names, num_patches=9)
    transformers.Siglip2VisionModel(config).save_pretrained(tmp_path)
    name = "Siglip2ImageProcessorPil" if hasattr(transformers, "Siglip2ImageProcessorPil") else "Siglip2ImageProcessor"
    getattr(transformers, name)(patch_size=8, max_num_patches=9).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"rows of patches \(NaFlex\); give a checkpoint of one size") as error:
        image_encoder(f"hf:{tmp_path}")
    assert "\n" not in str(error.value)


def test_a_missing_package_of_a_tokenizer_is_named(bert, monkeypatch):
    def missing(*args, **options):
        raise ImportError("SiglipTokenizer requires the SentencePiece library but it was not found")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", missing)
    with pytest.raises(InputError, match=r"SentencePiece library .*run `pip install 'pairsift\[hf\]'`"):
        text_encoder(f"hf:{bert}")
