"""The layouts of published checkpoints: which parameter is which, and what the options in a file mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.options import Options

Parameters = Mapping[str, Tensor]
Values = Mapping[str, Any]  # the options that the authors' program stored beside the parameters

IMAGES, TEXTS, PAIRS = "img_enc.", "txt_enc.", "sim_enc."  # the encoders in the authors' code
ENCODERS = (IMAGES, TEXTS, PAIRS)
KNOWN = "SGRAF, SCAN, VSRN, VSE-infinity, IMRAM or NPC"
CLIPPED = "clipped_l2norm"  # the normalisation of affinities that SCAN and IMRAM share with the matchers here
GATES = {"text": "t2i", "image": "i2t"}


@dataclass(frozen=True)
class Layout:
    """The parameters of one kind of published checkpoint.

    Attributes:
        kind: Name of the matcher.
        stems: Published stem for each stem of the matcher's parameters; `#` is the number of a repeated part.
        sizes: For each size that a shape tells: the parameter and the axis.
        counts: For each number of repeated parts: the published stem of one, up to its number.
        first: Number of the first repeated part in the published names.
        settings: Function of the stored options and the parameters; it returns the matcher's options that no shape
            tells.
        prepare: Function that brings parameters into the shapes of the matcher.
        unread: Beginnings of the names of parameters that no similarity needs.
        spare_words: Most rows that the embedding may have beyond the vocabulary; they are never read.
    """

    kind: str
    stems: Mapping[str, str]
    sizes: Mapping[str, tuple[str, int]]
    counts: Mapping[str, str] = field(default_factory=dict)
    first: int = 0
    settings: Callable[[Values, Parameters], dict[str, Any]] = lambda options, parameters: {}
    prepare: Callable[[Parameters], Parameters] = lambda parameters: parameters
    unread: tuple[str, ...] = ()
    spare_words: int = 0

    @property
    def encoders(self) -> int:
        """How many of the encoders the layout reads."""
        return 3 if any(stem.startswith(PAIRS) for stem in self.stems.values()) else 2

    def published_name(self, name: str) -> str:
        """Return the published name of a parameter of the matcher."""
        stem, _, leaf = name.rpartition(".")
        if number := re.search(r"\.(\d+)\.", f"{stem}."):
            generic = f"{stem}.".replace(number[0], ".#.", 1).removesuffix(".")
            if generic in self.stems:
                return f"{self.stems[generic]}.{leaf}".replace("#", str(int(number[1]) + self.first))
        return f"{self.stems[stem]}.{leaf}"

    def all_settings(self, options: Values, parameters: Parameters) -> dict[str, Any]:
        """Return every option and size that the matcher's constructor takes.

        Raises:
            InputError: A parameter is missing or has too few axes, or the options are not supported.
        """
        found: dict[str, Any] = {}
        for option, (name, axis) in self.sizes.items():
            if name not in parameters:
                raise InputError(f"has no parameter {name}")
            if parameters[name].ndim <= axis:
                raise InputError(f"its {name} has the shape {tuple(parameters[name].shape)}, which has no axis {axis}")
            found[option] = parameters[name].shape[axis]
        for option, beginning in self.counts.items():
            found[option] = len(numbers(beginning, parameters))
        gru = self.stems["words.gru"]
        found["gru_layers"] = max(1, len(numbers(f"{gru}.weight_ih_l", parameters)))
        return found | self.settings(options, parameters)


def numbers(beginning: str, parameters: Parameters) -> set[str]:
    """Return the numbers behind a beginning of a name."""
    return {found[1] for name in parameters if (found := re.match(rf"{re.escape(beginning)}(\d+)", name))}


def layout_of(parameters: Parameters, options: Values) -> Layout:
    """Return the layout that parameters have.

    Raises:
        InputError: The layout is not supported.
    """
    refuse_unsupported(parameters, options)
    for beginning, layout in SIGNS.items():
        if any(name.startswith(beginning) for name in parameters):
            return layout
    if f"{TEXTS}rnn.weight_ih_l0" in parameters:
        if "cross_attn" in options:
            return SCAN
        raise InputError(
            "its parameters may be of SCAN, but it states no option cross_attn: what the similarity is, no "
            "parameter tells"
        )
    raise InputError(f"its parameters fit none of {KNOWN}")


def refuse_unsupported(parameters: Parameters, options: Values) -> None:
    """Raise an error that says what no matcher here supports.

    Raises:
        InputError: The checkpoint was trained with something unsupported.
    """
    for name in ("no_imgnorm", "no_txtnorm"):
        if options.get(name) is True:
            raise InputError(
                f"was trained with {name}, so its codes do not have unit length; no matcher here supports that"
            )
    if options.get("use_abs") is True or options.get("measure", "cosine") != "cosine":
        raise InputError("was trained for order embeddings (use_abs or measure); no matcher here supports that")
    reasons = {
        f"{TEXTS}bert.": "its text encoder is a BERT; only GRUs over words are imported",
        f"{IMAGES}backbone.": "its image encoder reads pixels by a CNN; only encoders of regions are imported",
        f"{IMAGES}cnn.": "its image encoder reads pixels by a CNN; only encoders of regions are imported",
        f"{IMAGES}fc.weight_g": "its image encoder has weight normalisation; no matcher here supports that",
        f"{IMAGES}fc_local.weight_g": "its image encoder has weight normalisation; no matcher here supports that",
    }
    for beginning, reason in reasons.items():
        if any(name.startswith(beginning) for name in parameters):
            raise InputError(reason)


def gru_directions(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the directions of the GRU over words."""
    backward = any(re.fullmatch(r"txt_enc\.(cap_)?rnn\.weight_ih_l0_reverse", name) for name in parameters)
    return {"gru_directions": "both" if backward else "forward"}


def scan_options(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the options of SCAN's attention and pooling."""
    stored_choice(options, "raw_feature_norm", {CLIPPED: CLIPPED})
    direction = stored_choice(options, "cross_attn", {"t2i": "t2i", "i2t": "i2t"})
    pooling = stored_choice(options, "agg_func", {"Mean": "mean", "LogSumExp": "lse"})
    found = gru_directions(options, parameters) | {"direction": direction, "pooling": pooling}
    found[f"lambda_{direction}"] = stored_number(options, "lambda_softmax")
    return found | ({f"lse_{direction}": stored_number(options, "lambda_lse")} if pooling == "lse" else {})


def imram_options(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the options of IMRAM's attention."""
    stored_choice(options, "raw_feature_norm", {CLIPPED: CLIPPED})
    if options.get("no_IMRAM_norm") is not True:
        raise InputError(
            "was trained without no_IMRAM_norm, so its queries are normalised in every round; the matcher imram does "
            "not do that"
        )
    modes = {"full_IMRAM": "full", "text_IMRAM": "text", "image_IMRAM": "image"}
    found = gru_directions(options, parameters) | {"direction": stored_choice(options, "model_mode", modes)}
    return found | {
        "steps": int(stored_number(options, "iteration_step")),
        "sharpness": stored_number(options, "lambda_softmax"),
    }


def vsrn_options(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the forms of VSRN's normalisations."""
    return {"norm": "entry", "state_norm": f"{IMAGES}bn.weight" in parameters}


def stored_choice(options: Values, name: str, known: Mapping[str, str]) -> str:
    """Return what a stored option means.

    Raises:
        InputError: It is missing, or means something that is not supported.
    """
    if name not in options:
        raise InputError(f"states no option {name}, which no parameter tells")
    if options[name] not in known:
        raise InputError(f"was trained with {name} {options[name]}; supported: {', '.join(known)}")
    return known[options[name]]


def stored_number(options: Values, name: str) -> float:
    """Return a stored option that is a number.

    Raises:
        InputError: It is missing, or no number.
    """
    value = options.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"states no number {name}, which no parameter tells")
    return float(value)


def flat_kernels(parameters: Parameters) -> Parameters:
    """Return VSRN's parameters with the kernels of its convolutions of width 1 as matrices."""
    return {
        name: value.squeeze(-1) if ".Rs_GCN_" in name and value.ndim == 3 and value.shape[-1] == 1 else value
        for name, value in parameters.items()
    }


def joined_gates(parameters: Parameters) -> Parameters:
    """Return IMRAM's parameters with the gate and the update of each direction in one matrix, the gate first.

    Raises:
        InputError: One of them is missing or misshapen.
    """
    parts = {f"{part}_{way}.": (part, way) for way in GATES.values() for part in ("gate", "linear")}
    rest = {name: value for name, value in parameters.items() if not name.startswith(tuple(parts))}
    for way in GATES.values():
        for leaf in ("weight", "bias"):
            pair = [f"{part}_{way}.{leaf}" for part in ("gate", "linear")]
            if lost := [name for name in pair if name not in parameters]:
                raise InputError(f"has no parameter {lost[0]}")
            gate, update = (parameters[name] for name in pair)
            if gate.shape != update.shape:
                raise InputError(f"its {pair[0]} and {pair[1]} have different shapes")
            rest[f"gates_{way}.{leaf}"] = torch.cat([gate, update])
    return rest


WORD_SIZES = {
    "vocabulary_size": (f"{TEXTS}embed.weight", 0),
    "word_dim": (f"{TEXTS}embed.weight", 1),
}
ENCODER_SIZES = {"image_dim": (f"{IMAGES}fc.weight", 1), "dim": (f"{IMAGES}fc.weight", 0), **WORD_SIZES}
WORDS = {"words.vectors": f"{TEXTS}embed", "words.gru": f"{TEXTS}rnn"}

SIMILARITY = {
    "regions": f"{IMAGES}fc",
    "words.vectors": f"{TEXTS}embed",
    "words.gru": f"{TEXTS}cap_rnn",
    "image_attention.local": f"{PAIRS}v_global_w.embedding_local.0",
    "image_attention.local_norm": f"{PAIRS}v_global_w.embedding_local.1",
    "image_attention.whole": f"{PAIRS}v_global_w.embedding_global.0",
    "image_attention.whole_norm": f"{PAIRS}v_global_w.embedding_global.1",
    "image_attention.common": f"{PAIRS}v_global_w.embedding_common.0",
    "text_attention.local": f"{PAIRS}t_global_w.embedding_local.0",
    "text_attention.whole": f"{PAIRS}t_global_w.embedding_global.0",
    "text_attention.common": f"{PAIRS}t_global_w.embedding_common.0",
    "local": f"{PAIRS}sim_tranloc_w",
    "whole": f"{PAIRS}sim_tranglo_w",
    "head": f"{PAIRS}sim_eval_w",
}
SIMILARITY_SIZES = {
    **ENCODER_SIZES,
    "regions": (f"{PAIRS}v_global_w.embedding_local.1.weight", 0),
    "similarity_dim": (f"{PAIRS}sim_eval_w.weight", 1),
}
SGR = Layout(
    "sgr",
    SIMILARITY
    | {
        "steps.#.query": f"{PAIRS}SGR_module.#.graph_query_w",
        "steps.#.key": f"{PAIRS}SGR_module.#.graph_key_w",
        "steps.#.out": f"{PAIRS}SGR_module.#.sim_graph_w",
    },
    SIMILARITY_SIZES,
    counts={"steps": f"{PAIRS}SGR_module."},
    settings=gru_directions,
)
SAF = Layout(
    "saf",
    SIMILARITY | {"gate": f"{PAIRS}SAF_module.attn_sim_w", "gate_norm": f"{PAIRS}SAF_module.bn"},
    SIMILARITY_SIZES,
    settings=gru_directions,
)
SCAN = Layout("scan", {"regions": f"{IMAGES}fc", **WORDS}, ENCODER_SIZES, settings=scan_options)
IMRAM = Layout(
    "imram",
    {"regions": f"{IMAGES}fc_local", **WORDS} | {f"gates.{side}": f"gates_{way}" for side, way in GATES.items()},
    {"image_dim": (f"{IMAGES}fc_local.weight", 1), "dim": (f"{IMAGES}fc_local.weight", 0), **WORD_SIZES},
    settings=imram_options,
    prepare=joined_gates,
    unread=tuple(f"gates_{way}." for way in GATES.values()),
)
VSRN = Layout(
    "vsrn",
    {
        "project": f"{IMAGES}fc",
        "reader": f"{IMAGES}img_rnn",
        "state_norm": f"{IMAGES}bn",
        "graphs.#.theta": f"{IMAGES}Rs_GCN_#.theta",
        "graphs.#.phi": f"{IMAGES}Rs_GCN_#.phi",
        "graphs.#.value": f"{IMAGES}Rs_GCN_#.g",
        "graphs.#.out": f"{IMAGES}Rs_GCN_#.W.0",
        "graphs.#.norm": f"{IMAGES}Rs_GCN_#.W.1",
        **WORDS,
    },
    ENCODER_SIZES,
    counts={"graphs": f"{IMAGES}Rs_GCN_"},
    first=1,
    settings=vsrn_options,
    prepare=flat_kernels,
)
VSE = Layout(
    "vse",
    {
        "regions.project": f"{IMAGES}fc",
        "regions.residual.0": f"{IMAGES}mlp.layers.0",
        "regions.residual.1": f"{IMAGES}mlp.bns.0",
        "regions.residual.3": f"{IMAGES}mlp.layers.1",
        "image_pool.gru": f"{IMAGES}gpool.gru",
        "image_pool.score": f"{IMAGES}gpool.linear",
        "text_pool.gru": f"{TEXTS}gpool.gru",
        "text_pool.score": f"{TEXTS}gpool.linear",
        **WORDS,
    },
    ENCODER_SIZES,
    settings=lambda options, parameters: gru_directions(options, parameters) | {"pooling": "gpo", "drop": 0.0},
    unread=(f"{IMAGES}mlp.bns.1.",),  # of the last layer, whose output is not normalised
    spare_words=1,  # `<mask>`, which the training puts behind the vocabulary
)
SIGNS = {
    f"{PAIRS}SGR_module.": SGR,
    f"{PAIRS}SAF_module.": SAF,
    f"{IMAGES}Rs_GCN_": VSRN,
    f"{IMAGES}gpool.": VSE,
    "gate_t2i.": IMRAM,
}

# The weights of a CLIP under OpenAI's names, as NPC stores them, and under the names of transformers.
CLIP_SIGN = "visual.conv1.weight"
CLIP_HEAD_WIDTH = 64  # width of every head of OpenAI's CLIPs; no parameter shows the number of heads
CLIP_ACTIVATION = "quick_gelu"
CLIP_PARAMETERS = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "logit_scale": "logit_scale",
}
CLIP_TRANSPOSED = {"visual.proj": "visual_projection.weight", "text_projection": "text_projection.weight"}
CLIP_STEMS = {
    "visual.ln_pre": "vision_model.pre_layrnorm",
    "visual.ln_post": "vision_model.post_layernorm",
    "ln_final": "text_model.final_layer_norm",
}
CLIP_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)[._](weight|bias)")
CLIP_BLOCK_STEMS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def clip_state(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the matcher `clip` from weights under OpenAI's names, in float32.

    Queries, keys and values are one matrix there and three here; projections are transposed.

    Raises:
        InputError: A parameter is unknown, such as a parameter of a CLIP with a ResNet.
    """
    state: dict[str, Tensor] = {}
    for name, value in parameters.items():
        stem, _, leaf = name.rpartition(".")
        if name in CLIP_PARAMETERS:
            state[CLIP_PARAMETERS[name]] = value
        elif name in CLIP_TRANSPOSED:
            state[CLIP_TRANSPOSED[name]] = value.T
        elif stem in CLIP_STEMS:
            state[f"{CLIP_STEMS[stem]}.{leaf}"] = value
        elif found := CLIP_BLOCK.fullmatch(name):
            state |= _clip_block(name, value, found)
        elif name.startswith(("visual.layer", "visual.attnpool", "visual.bn")):
            raise InputError("its image encoder is a ResNet; of CLIPs only vision transformers are imported")
        else:
            raise InputError(f"has an unknown parameter {name}")
    return {f"model.{name}": value.float().contiguous() for name, value in state.items()}


def _clip_block(name: str, value: Tensor, found: re.Match[str]) -> dict[str, Tensor]:
    """Return a parameter of a transformer's block under its names."""
    tower = "vision_model" if found[1] else "text_model"
    block, part, leaf = f"{tower}.encoder.layers.{found[2]}", found[3], found[4]
    if part == "attn.in_proj":
        if len(value) % 3:
            raise InputError(f"its {name} has {len(value)} rows, which are no queries, keys and values")
        thirds = zip("qkv", value.chunk(3), strict=True)
        return {f"{block}.self_attn.{letter}_proj.{leaf}": third for letter, third in thirds}
    if part not in CLIP_BLOCK_STEMS:
        raise InputError(f"has an unknown parameter {name}")
    return {f"{block}.{CLIP_BLOCK_STEMS[part]}.{leaf}": value}


def check_clip(state: Mapping[str, Tensor], options: Options) -> None:
    """Raise an error for weights that do not fit the model that the options name.

    Args:
        state: What `clip_state` returned.
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
        if tower.num_attention_heads * CLIP_HEAD_WIDTH != tower.hidden_size or tower.hidden_act != CLIP_ACTIVATION:
            raise InputError(
                f"{where} has {tower.num_attention_heads} heads and {tower.hidden_act} at a width of "
                f"{tower.hidden_size}; OpenAI's have one head for {CLIP_HEAD_WIDTH} and {CLIP_ACTIVATION}"
            )
