"""The English sentence encoder: equal to transformers' own network, with weights that are its makers'."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_helpers import WORDS, save_tokenizer
from translations import TRANSLATIONS

from pairsift.encode import flat, minilm
from pairsift.encode.encoder import cut_line, package_folder
from pairsift.encode.parallel import map_in_threads
from pairsift.encode.registry import text_encoder
from pairsift.errors import InputError

SENTENCES = [
    *TRANSLATIONS["English"],
    "a dog",
    "dog",
    "",
    "A Dog's naïve, ROUGH-haired friend: 12.5 % of them!\tÉtude 狗 🐕",
    "two children play in the red snow in front of a house, and a dog runs on the grass behind them .",
]
ODD = ["", "   ", "\0", "\ud800", "🐕", "狗在草地上奔跑", "a" * 5000, "[SEP] [PAD]", "\u200b"]
PACKAGE = package_folder(minilm.PACKAGE, "'pairsift[minilm]'", "minilm") / "model"

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(scope="module")
def encoder(in_precision):
    return in_precision(minilm.MiniLmEncoder, False)


@pytest.fixture(scope="module")
def tokens(in_precision):
    return in_precision(minilm.MiniLmEncoder, False, None, True)


def rows_of(folder: Path, captions: list[str]) -> list[torch.Tensor]:
    """The last layer's rows by transformers, one caption at a time."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        inputs = [
            tokenizer(caption, return_tensors="pt", truncation=True, max_length=minilm.LIMIT) for caption in captions
        ]
        return [model(**one).last_hidden_state[0] for one in inputs]


def test_the_weights_are_those_of_the_makers():
    assert hashlib.sha256((PACKAGE / "model.safetensors").read_bytes()).hexdigest() == minilm.SHA256
    assert minilm.SHA256.startswith("53aa51172d142c89d9012cce15ae4d6c")
    assert json.loads((PACKAGE / "sentence_bert_config.json").read_text())["max_seq_length"] == minilm.LIMIT
    steps = json.loads((PACKAGE / "1_Pooling" / "config.json").read_text())
    assert [step for step, used in steps.items() if used is True] == ["pooling_mode_mean_tokens"]


def test_vectors_and_tokens_are_those_of_transformers(encoder, tokens):
    captions = [*SENTENCES, "a long caption about many words " * 80]
    wanted = rows_of(PACKAGE, captions)
    for got, rows in zip(tokens.encode(captions), wanted, strict=True):
        np.testing.assert_allclose(got, rows, atol=1e-5)
    vectors = torch.nn.functional.normalize(torch.stack([rows.mean(0) for rows in wanted]), dim=1)
    np.testing.assert_allclose(encoder.encode(captions), vectors, atol=1e-5)
    assert (encoder.dim, encoder.kind, tokens.kind) == (384, "vector", "tokens")


def test_a_folder_has_a_model_of_any_size(tmp_path, in_precision):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=4 + len(WORDS), max_position_embeddings=20, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)  # names its weights `bert.…`
    save_tokenizer(tmp_path)
    captions = ["a dog", "two children play in the red snow .", "dog", "runs , house on grass .", "unheard words", ""]
    wanted = torch.nn.functional.normalize(torch.stack([rows.mean(0) for rows in rows_of(tmp_path, captions)]), dim=1)
    encoder = in_precision(minilm.MiniLmEncoder, False, str(tmp_path))
    np.testing.assert_allclose(encoder.encode(captions), wanted, atol=1e-5)
    assert [
        len(rows) for rows in in_precision(minilm.MiniLmEncoder, False, str(tmp_path), True).encode(["dog " * 900, ""])
    ] == [20, 2]
    before = encoder.key()
    (tmp_path / "tokenizer.json").write_text((tmp_path / "tokenizer.json").read_text().replace("house", "horse"))
    assert in_precision(minilm.MiniLmEncoder, False, str(tmp_path)).key() != before


def test_bfloat16_is_within_a_thousandth_and_has_the_same_key(encoder, in_precision):
    rounded = in_precision(minilm.MiniLmEncoder, True)
    cosine = (rounded.encode(SENTENCES) * encoder.encode(SENTENCES)).sum(1)
    assert 0.999 < cosine.min() < 1 - 1e-6
    assert rounded.key() == encoder.key()


def test_a_caption_has_its_vector_in_every_batch(encoder, tokens, monkeypatch):
    captions = [*SENTENCES, *ODD]
    wanted, rows = encoder.encode(captions), tokens.encode(captions)
    monkeypatch.setitem(flat._BATCH, "cpu", 30)
    np.testing.assert_allclose(encoder.encode(captions[::-1])[::-1], wanted, atol=1e-5)
    for got, row in zip(tokens.encode(captions), rows, strict=True):
        np.testing.assert_allclose(got, row, atol=1e-4)
    assert encoder.encode([]).shape == (0, 384) and tokens.encode([]) == []


def test_meaning_counts_and_word_order_does(encoder):
    captions = [
        "A dog runs on the beach.",
        "A puppy is sprinting along the shore.",
        "Two men repair a bicycle in a workshop.",
        "A cat is sleeping on the table.",
        "A cat is sleeping under the table.",
        "A cat naps beneath a table.",
    ]
    near = encoder.encode(captions) @ encoder.encode(captions).T
    assert near[0, 1] > 0.6 and near[0, 2] < 0.2
    assert near[3, 4] < 0.95 and near[4, 5] > near[3, 5]


def test_odd_captions_have_finite_vectors_of_length_one(encoder, tokens):
    vectors = encoder.encode(ODD)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert all(len(rows) >= 2 and np.isfinite(rows).all() for rows in tokens.encode(ODD))


def test_long_captions_are_told(encoder):
    captions = ["a dog", "word " * 254, "word " * 255]
    line = "1 of 3 captions have more than the 256 tokens that minilm reads: their ends do not count"
    assert cut_line(captions, encoder) == line and cut_line(captions[:2], encoder) is None


def test_threads_may_share_it(encoder):
    wanted = encoder.encode(SENTENCES)
    for got in map_in_threads(encoder.encode, [SENTENCES] * 6):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_the_key_follows_the_kind(encoder, tokens):
    assert encoder.key() != tokens.key() and text_encoder("minilm").key() == encoder.key()
    assert text_encoder(f"minilm:{PACKAGE}").key() == encoder.key()


def copied(folder: Path, **changed: object) -> Path:
    for name in minilm.FILES:
        (folder / name).write_bytes((PACKAGE / name).read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changed
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def says(spec: str) -> str:
    with pytest.raises(InputError) as caught:
        text_encoder(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_minilm_is_refused_in_one_line(tmp_path):
    assert "has no config.json; it needs config.json, model.safetensors and" in says("minilm:/no/such")
    folder = copied(tmp_path, model_type="roberta")
    assert "a roberta with gelu is no BERT like MiniLM); give hf:<folder>" in says(f"minilm:{folder}")
    folder = copied(tmp_path, num_hidden_layers=7)
    assert "KeyError: 'encoder.layer.6.attention.self.query.weight'" in says(f"minilm:{folder}")
    (folder / "model.safetensors").write_bytes(b"broken")
    assert "cannot be loaded" in says(f"minilm:{folder}")


def test_other_weights_in_the_package_are_refused(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    folder = copied(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"other")
    monkeypatch.setattr(minilm, "package_folder", lambda *names: tmp_path)
    assert f"are not those of all-MiniLM-L6-v2 (SHA-256 {hashlib.sha256(b'other').hexdigest()})" in says("minilm")


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr("pairsift.encode.encoder.find_spec", lambda name: None)
    assert "run `pip install 'pairsift[minilm]'`" in says("minilm")
