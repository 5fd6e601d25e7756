"""The rows of the four papers' ablations, each a set of options of `pairsift fit`."""

from __future__ import annotations

from dataclasses import dataclass

IMAGES = 2000


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper.

    Attributes:
        method: The method.
        source: Which table of its paper.
        noise: Noise ratios, as in the paper.
        rows: Options by row label; none for the method as it is.
        base: Options of every row, unless the row has others.
        images: Number of training images.
        captions: Captions of each image; None for all.
    """

    method: str
    source: str
    noise: tuple[float, ...]
    rows: dict[str, list[str]]
    base: tuple[str, ...] = ()
    images: int = IMAGES
    captions: int | None = None

    def options(self, label: str) -> list[str]:
        """All options of a row."""
        chosen = dict(option.split("=", 1) for option in (*self.base, *self.rows[label]))
        return [f"{name}={value}" for name, value in chosen.items()]


WHOLE: dict[str, list[str]] = {"whole": []}
PC2 = ("pc2.captions.search=batch",)
PCSR = (
    "pcsr.division.threshold=0.5",
    "pcsr.captions.search=batch",
    "pcsr.epochs.clean=2",
    "pcsr.epochs.refine=1",
    "pcsr.epochs.all=3",
)
STUDIES: dict[str, Study] = {
    "pc2_components": Study(
        "pc2",
        "Table 3",
        (0.4,),
        WHOLE
        | {
            "no rectification": ["pc2.stability.rectify=false"],
            "no pseudo-captions": ["pc2.weights.noisy=0"],
            "pseudo-classification alone": ["pc2.stability.rectify=false", "pc2.weights.noisy=0"],
            "pseudo-captions by embeddings": [
                "pc2.stability.rectify=false",
                "pc2.captions.compare=embedding",
                "pc2.weights.pseudo=0",
                "pc2.weights.entropy=0",
            ],
            "PC2* (supplement, Table 3)": ["pc2.captions.mismatch_threshold=0.5"],
            "search among all clean pairs (not in the paper)": ["pc2.captions.search=epoch"],
        },
        PC2,
    ),
    "pc2_one_caption": Study(
        "pc2",
        "(none): one caption an image",
        (0.4,),
        {
            "no pseudo-captions": ["pc2.weights.noisy=0"],
            "search in the batch": ["pc2.captions.search=batch"],
            "search among all clean pairs": ["pc2.captions.search=epoch"],
            "search among all clean pairs by embeddings": [
                "pc2.captions.search=epoch",
                "pc2.captions.compare=embedding",
            ],
        },
        images=6000,
        captions=1,
    ),
    "pc2_classes": Study(
        "pc2",
        "Table 4",
        (0.4,),
        WHOLE | {f"K = {k}": [f"pc2.classifier.classes={k}"] for k in (32, 512, 2048, 8192)},
        PC2,
    ),
    "pc2_curve": Study(
        "pc2", "Figure 5", (0.4,), WHOLE | {f"m = {m}": [f"infonce.base={m}"] for m in (1.5, 5, 20, 50)}, PC2
    ),
    "pc2_networks": Study("pc2", "(none)", (0.4,), WHOLE | {"one network": ["pc2.networks=1"]}, PC2),
    "pcsr_classes": Study(
        "pcsr",
        "Table 3",
        (0.6,),
        WHOLE | {f"K = {k}": [f"pcsr.classifier.classes={k}"] for k in (32, 64, 128, 512)},
        PCSR,
    ),
    "pcsr_subsets": Study(
        "pcsr",
        "Table 4",
        (0.6,),
        WHOLE
        | {
            "clean and refinable": ["pcsr.noisy.train=refinable"],
            "clean and ambiguous": ["pcsr.noisy.train=ambiguous"],
            "clean": ["pcsr.noisy.train=none"],
            "search among all clean pairs (not in the paper)": ["pcsr.captions.search=epoch"],
        },
        PCSR,
    ),
    "pcsr_one_caption": Study(
        "pcsr",
        "(none): one caption an image",
        (0.4,),
        {
            "clean": ["pcsr.noisy.train=none"],
            "search in the batch": ["pcsr.captions.search=batch"],
            "search among all clean pairs": ["pcsr.captions.search=epoch"],
        },
        ("pcsr.division.threshold=0.5", "pcsr.epochs.clean=2", "pcsr.epochs.refine=1", "pcsr.epochs.all=3"),
        images=6000,
        captions=1,
    ),
    "pcsr_warmup": Study(
        "pcsr",
        "(none): the classifier learns in the warm-up, as in the preset, or waits for clean pairs, as printed",
        (0.6,),
        WHOLE | {"as printed": ["pcsr.classifier.in_warmup=false", "pcsr.consistency.counted_from=2"]},
        PCSR,
    ),
    "pcsr_components": Study(
        "pcsr",
        "Table 5; its last row is PC2",
        (0.6,),
        WHOLE
        | {"all noisy as refinable": ["pcsr.noisy.loss=refinable"], "all as ambiguous": ["pcsr.noisy.loss=ambiguous"]},
        PCSR,
    ),
    "pcsr_without_division": Study("pc2", "PCSR's Table 5, last row", (0.6,), WHOLE, PC2),
    "gsc_components": Study(
        "gsc",
        "Table 5; the indicators alone are not in it",
        (0.4,),
        WHOLE
        | {
            "no averages": [
                "gsc.indicators.beta1=1",
                "gsc.indicators.beta2=1",
                "gsc.epochs.warmup=2",
                "gsc.epochs.train=6",
            ],
            "one network": ["gsc.networks=1"],
            "no intra-modal loss": ["gsc.intra_modal.gamma=0"],
            "cross-modal indicator alone": ["gsc.indicators.use=cross_modal"],
            "intra-modal indicator alone": ["gsc.indicators.use=intra_modal"],
        },
    ),
    "gsc_weights": Study(
        "gsc",
        "Figure 4",
        (0.4,),
        WHOLE
        | {f"gamma = {g}": [f"gsc.intra_modal.gamma={g}"] for g in (0.001, 0.1, 1)}
        | {f"beta_{k} = {b}": [f"gsc.indicators.beta{k}={b}"] for k in (1, 2) for b in (0.5, 0.9)}
        | {f"both betas = {b}": [f"gsc.indicators.beta1={b}", f"gsc.indicators.beta2={b}"] for b in (0.5, 0.9)},
    ),
    "gsc_batch": Study(
        "gsc",
        "Table 6; B of the losses and of y_CM, S_IM stays with 1,024",
        (0.4,),
        {"B = 512, y_CM by 32": []}
        | {f"B = {b}": [f"batch_size={b}", f"gsc.indicators.block={b}"] for b in (32, 64, 128, 192)},
    ),
    "npc_components": Study(
        "npc",
        "Table 6",
        (0.2, 0.4, 0.6),
        WHOLE
        | {
            "weights alone": ["npc.bank.weight=0"],
            "bank's loss alone": ["npc.impact.weigh=false"],
            "neither": ["npc.impact.weigh=false", "npc.bank.weight=0"],
        },
    ),
    "npc_threshold": Study(
        "npc",
        "Table 5; 0.8 is the preset",
        (0.0, 0.6),
        {"tau = 0.8": []} | {f"tau = {t}": [f"npc.bank.threshold={t}"] for t in (0.5, 0.7, 0.99)},
    ),
}
