"""Weights of a CLIP under OpenAI's names, as NPC stores them, under the names of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.options import Options

SIGN = "visual.conv1.weight"
HEAD_WIDTH = 64  # of every head of OpenAI's CLIPs: no parameter shows the number of heads
ACTIVATION = "quick_gelu"
WHOLE = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "logit_scale": "logit_scale",
}
TURNED = {"visual.proj": "visual_projection.weight", "text_projection": "text_projection.weight"}
STEMS = {
    "visual.ln_pre": "vision_model.pre_layrnorm",
    "visual.ln_post": "vision_model.post_layernorm",
    "ln_final": "text_model.final_layer_norm",
}
BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)[._](weight|bias)")
PARTS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def converted(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the matcher `clip` with the weights of OpenAI's names, in float32.

    Queries, keys and values are one matrix there and three here; projections are transposed.

    Raises:
        InputError: A parameter is unknown, as those of a CLIP with a ResNet are.
    """
    state: dict[str, Tensor] = {}
    for name, value in parameters.items():
        stem, _, leaf = name.rpartition(".")
        if name in WHOLE:
            state[WHOLE[name]] = value
        elif name in TURNED:
            state[TURNED[name]] = value.T
        elif stem in STEMS:
            state[f"{STEMS[stem]}.{leaf}"] = value
        elif found := BLOCK.fullmatch(name):
            state |= _block(name, value, found)
        elif name.startswith(("visual.layer", "visual.attnpool", "visual.bn")):
            raise InputError("its image encoder is a ResNet; of CLIPs only vision transformers are imported")
        else:
            raise InputError(f"has an unknown parameter {name}")
    return {f"model.{name}": value.float().contiguous() for name, value in state.items()}


def _block(name: str, value: Tensor, found: re.Match[str]) -> dict[str, Tensor]:
    """Return a parameter of a transformer's block under its names."""
    tower = "vision_model" if found[1] else "text_model"
    block, part, leaf = f"{tower}.encoder.layers.{found[2]}", found[3], found[4]
    if part == "attn.in_proj":
        if len(value) % 3:
            raise InputError(f"its {name} has {len(value)} rows, which are no queries, keys and values")
        thirds = zip("qkv", value.chunk(3), strict=True)
        return {f"{block}.self_attn.{letter}_proj.{leaf}": third for letter, third in thirds}
    if part not in PARTS:
        raise InputError(f"has an unknown parameter {name}")
    return {f"{block}.{PARTS[part]}.{leaf}": value}


def check_clip(state: Mapping[str, Tensor], options: Options) -> None:
    """Raise an error for weights that are not those of the model that the options name.

    Args:
        state: What `converted` returned.
        options: The options of the matcher `clip`; `checkpoint` names the model.

    Raises:
        InputError: There is no such model, or a parameter is missing, unknown or misshapen, or the model computes
            something else with equal weights.
    """
    clip = MATCHERS["clip"]
    clip.check(options)
    place: Any = options
    with torch.device("meta"):
        matcher: Any = clip.make(options, pretrained=False)
    reference = matcher.state_dict()
    where = f"--clip.checkpoint {place.checkpoint}"
    for name, value in state.items():
        if name not in reference:
            raise InputError(f"its {name} has no place in {where}")
        if value.shape != reference[name].shape:
            shapes = tuple(value.shape), tuple(reference[name].shape)
            raise InputError(f"its {name} has the shape {shapes[0]}; {where} has {shapes[1]}")
    if lost := sorted(reference.keys() - state.keys()):
        raise InputError(f"has no parameter for {lost[0]} of {where}")
    for tower in (matcher.model.config.vision_config, matcher.model.config.text_config):
        if tower.num_attention_heads * HEAD_WIDTH != tower.hidden_size or tower.hidden_act != ACTIVATION:
            raise InputError(
                f"{where} has {tower.num_attention_heads} heads and {tower.hidden_act} at a width of "
                f"{tower.hidden_size}; OpenAI's have one head for {HEAD_WIDTH} and {ACTIVATION}"
            )
