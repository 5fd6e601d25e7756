"""A CLIP, or a SigLIP, of two small layers a side with random weights, saved as a checkpoint is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

LENGTH, SIDE = 16, 32
CORPUS = [
    "a large red ball on the grass next to a small blue boat in the rain",
    "two dogs and a yellow house under the sun, by the sea; a green tree in the snow at night",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def save_clip(folder: Path, old: bool = False, sizes: Mapping[str, Any] = SIZES, **text) -> Path:
    """Write a checkpoint into a folder.

    Args:
        folder: Where to.
        old: Whether its configuration and its processor's are written as those of the first CLIPs on the hub are.
        sizes: Sizes of both towers.
        text: More of the text configuration.
    """
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = byte_pairs()
    end = len(vocabulary) - 1
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    transformers.CLIPTokenizerFast.from_pretrained(folder, model_max_length=LENGTH).save_pretrained(folder)
    text = {"vocab_size": end + 1, "max_position_embeddings": LENGTH, "eos_token_id": 2 if old else end, **text}
    config = transformers.CLIPConfig(
        text_config={**sizes, **text},
        vision_config={**sizes, "image_size": SIDE, "patch_size": 8},
        projection_dim=24,
    )
    torch.manual_seed(0)
    model = transformers.CLIPModel(config)
    for name, one in model.named_parameters():
        if "proj" in name:
            torch.nn.init.normal_(one, std=0.2)  # the usual start makes all images look alike in a net so small
    model.save_pretrained(folder)
    if old:
        processor = {"feature_extractor_type": "CLIPFeatureExtractor", "size": SIDE, "crop_size": SIDE, "resample": 3}
        processor |= {"do_resize": True, "do_center_crop": True, "do_normalize": True}
        processor |= {"image_mean": [0.48, 0.45, 0.41], "image_std": [0.27, 0.26, 0.28]}
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    else:
        size = {"height": SIDE, "width": SIDE}
        image_processor()(size={"shortest_edge": SIDE}, crop_size=size).save_pretrained(folder)
    return folder


def save_siglip(folder: Path) -> Path:
    """Write a SigLIP with the tokenizer of `save_clip`."""
    import transformers

    words = len(byte_pairs()[0])
    save_clip(folder)
    ends = {"pad_token_id": words - 1, "bos_token_id": words - 2, "eos_token_id": words - 1}
    text = {"vocab_size": words, "max_position_embeddings": LENGTH, "projection_size": SIZES["hidden_size"], **ends}
    config = transformers.SiglipConfig(
        text_config={**SIZES, **text}, vision_config={**SIZES, "image_size": SIDE, "patch_size": 8}
    )
    torch.manual_seed(0)
    model = transformers.SiglipModel(config)
    for one in model.parameters():
        torch.nn.init.normal_(one, 0.0, 0.5)  # the usual start makes all images look alike in a net so small
    torch.nn.init.constant_(model.logit_scale, 2.5)
    torch.nn.init.constant_(model.logit_bias, -4.0)
    model.save_pretrained(folder)
    image_processor("Siglip")(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return folder


def image_processor(kind: str = "CLIP") -> type:
    """The processor of images that reads them by Pillow, which version 5 of transformers gave another name."""
    import transformers

    return getattr(transformers, f"{kind}ImageProcessorPil", None) or getattr(transformers, f"{kind}ImageProcessor")


def byte_pairs() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary of bytes and of a few merges learned from the corpus, the start's and the end's ids last."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(False)])
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>", show_progress=False)
    )
    merges = [tuple(pair) for pair in json.loads(made.to_str())["model"]["merges"]]
    words = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    return {word: at for at, word in enumerate(dict.fromkeys(words))}, merges
