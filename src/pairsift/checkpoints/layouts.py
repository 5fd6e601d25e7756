"""The layouts of published checkpoints: which parameter is which, and what the options in a file mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pairsift.errors import InputError

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
        InputError: It is none of those that are imported.
    """
    refuse_unsupported(parameters, options)
    for beginning, layout in SIGNS.items():
        if any(name.startswith(beginning) for name in parameters):
            return layout
    if f"{TEXTS}rnn.weight_ih_l0" in parameters:
        if "cross_attn" in options:
            return SCAN
        raise InputError(
            "its parameters may be those of SCAN, but it states no option cross_attn: what the similarity is, no "
            "parameter tells"
        )
    raise InputError(f"its parameters are not those of {KNOWN}")


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


def either_way(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the directions of the GRU over words."""
    backward = any(re.fullmatch(r"txt_enc\.(cap_)?rnn\.weight_ih_l0_reverse", name) for name in parameters)
    return {"gru_directions": "both" if backward else "forward"}


def of_scan(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the options of SCAN's attention and pooling."""
    require_clipped(options)
    direction = one_of(options, "cross_attn", {"t2i": "t2i", "i2t": "i2t"})
    pooling = one_of(options, "agg_func", {"Mean": "mean", "LogSumExp": "lse"})
    found = either_way(options, parameters) | {"direction": direction, "pooling": pooling}
    found[f"lambda_{direction}"] = number(options, "lambda_softmax")
    return found | ({f"lse_{direction}": number(options, "lambda_lse")} if pooling == "lse" else {})


def of_imram(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the options of IMRAM's attention."""
    require_clipped(options)
    if options.get("no_IMRAM_norm") is not True:
        raise InputError(
            "was trained without no_IMRAM_norm, so its queries are normalised in every round; the matcher imram does "
            "not do that"
        )
    modes = {"full_IMRAM": "full", "text_IMRAM": "text", "image_IMRAM": "image"}
    found = either_way(options, parameters) | {"direction": one_of(options, "model_mode", modes)}
    return found | {
        "steps": int(number(options, "iteration_step")),
        "sharpness": number(options, "lambda_softmax"),
    }


def of_vsrn(options: Values, parameters: Parameters) -> dict[str, Any]:
    """Return the forms of VSRN's normalisations."""
    return {"norm": "entry", "state_norm": f"{IMAGES}bn.weight" in parameters}


def require_clipped(options: Values) -> None:
    """Raise an error for other normalisations of the affinities than that of the matchers here."""
    one_of(options, "raw_feature_norm", {CLIPPED: CLIPPED})


def one_of(options: Values, name: str, known: Mapping[str, str]) -> str:
    """Return what a stored option means.

    Raises:
        InputError: It is missing, or means something that is not supported.
    """
    if name not in options:
        raise InputError(f"states no option {name}, which no parameter tells")
    if options[name] not in known:
        raise InputError(f"was trained with {name} {options[name]}; supported: {', '.join(known)}")
    return known[options[name]]


def number(options: Values, name: str) -> float:
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
    settings=either_way,
)
SAF = Layout(
    "saf",
    SIMILARITY | {"gate": f"{PAIRS}SAF_module.attn_sim_w", "gate_norm": f"{PAIRS}SAF_module.bn"},
    SIMILARITY_SIZES,
    settings=either_way,
)
SCAN = Layout("scan", {"regions": f"{IMAGES}fc", **WORDS}, ENCODER_SIZES, settings=of_scan)
IMRAM = Layout(
    "imram",
    {"regions": f"{IMAGES}fc_local", **WORDS} | {f"gates.{side}": f"gates_{way}" for side, way in GATES.items()},
    {"image_dim": (f"{IMAGES}fc_local.weight", 1), "dim": (f"{IMAGES}fc_local.weight", 0), **WORD_SIZES},
    settings=of_imram,
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
    settings=of_vsrn,
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
    settings=lambda options, parameters: either_way(options, parameters) | {"pooling": "gpo"},
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
