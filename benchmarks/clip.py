"""Training steps of CLIP at the size of ViT-B/32 with random weights: time and memory by the size of the parts.

Pixels and captions (of 24 tokens) are random: time and memory do not depend on them. Each row is a process of its own.
On a CPU its time is the processor's, all threads together, and its peak the largest resident memory; on a GPU they are
the time on the clock and the largest allocation.

    python benchmarks/clip.py --threads 1 --write docs/matchers.md --json benchmarks/results/clip.json
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch

from pairsift.encode.features import Items
from pairsift.loss.ranking import InfoNCE
from pairsift.match.clip import Clip, ClipOptions
from rows import Row, markdown, parser, write_between, write_rows

TOKENS, SIDE, VOCABULARY = 24, 224, 49408


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--batch", type=int, default=32, help="pairs in a step (default: %(default)s)")
    options.add_argument(
        "--parts", type=int, nargs="+", default=[0, 8], help="sizes of the parts; 0 is the whole batch"
    )
    options.add_argument("--freeze", nargs="+", default=["none", "image"], help="none, image, text, towers")
    options.add_argument("--precision", nargs="+", default=["fp32", "bf16"], help="fp32, bf16")
    options.add_argument("--steps", type=int, default=2, help="measured steps after the first (default: %(default)s)")
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--write", type=Path, help="the Markdown file whose table is made anew")
    chosen = options.parse_args()
    settings = [
        {"micro_batch": size, "freeze": freeze, "precision": precision}
        for precision in chosen.precision
        for freeze in chosen.freeze
        for size in chosen.parts
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        save_random(Path(folder))
        for one in settings:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(measure, (folder, one, vars(chosen))))
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    about = {"torch": torch.__version__, "machine": platform.machine(), "threads": chosen.threads}
    write_rows(chosen.json, [{**row, **about} for row in rows])
    write_between(chosen.write, "<!-- clip -->", table(rows), "<!-- end clip -->")


def save_random(folder: Path, weights: bool = True) -> None:
    """Write what a checkpoint of ViT-B/32 holds, with random weights or none and a vocabulary of no words."""
    import transformers
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(letter + "</w>" for letter in letters)]
    words += [f"unused{at}" for at in range(VOCABULARY - 2 - len(words))]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: at for at, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizerFast.from_pretrained(folder, model_max_length=77).save_pretrained(folder)
    processor = (
        getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    )  # versions 5 and 4
    processor().save_pretrained(folder)
    config = transformers.CLIPConfig()
    (transformers.CLIPModel(config) if weights else config).save_pretrained(folder)


def measure(folder: str, setting: Row, chosen: Row) -> Row:
    """Seconds and peak memory of a step."""
    torch.manual_seed(0)
    torch.set_num_threads(chosen["threads"])
    device, batch = torch.device(chosen["device"]), chosen["batch"]
    options = ClipOptions(checkpoint=folder, freeze=setting["freeze"], micro_batch=setting["micro_batch"])
    matcher = Clip(options).to(device).train()
    optimizer = torch.optim.AdamW(matcher.parameters(), 1e-6, fused=True)
    pixels = Items(torch.randint(0, 256, (batch, 3, SIDE, SIDE), dtype=torch.uint8)).to(device)
    ids = torch.randint(600, VOCABULARY - 2, (batch, TOKENS))
    ids[:, 0], ids[:, -1] = VOCABULARY - 2, VOCABULARY - 1
    captions = Items(ids).to(device)
    apart, y = torch.eye(batch, dtype=torch.bool, device=device), torch.ones(batch, device=device)
    seconds, losses = [], []
    clock = time.process_time if device.type == "cpu" else time.monotonic
    for _ in range(1 + chosen["steps"]):
        began = clock()
        with torch.autocast(device.type, torch.bfloat16, enabled=setting["precision"] == "bf16"):
            left, right = matcher.encode_images(pixels), matcher.encode_texts(captions)
            loss = InfoNCE()(matcher.similarity(left, right), matcher.scale(), y, apart).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(clock() - began)
    cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        **setting,
        "batch": batch,
        "parameters": sum(one.numel() for one in matcher.parameters()),
        "seconds": min(seconds[1:]),
        "peak_gb": peak / 1e9,
        "losses": losses,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
    }


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        parts = [str(row["batch"]), str(row["micro_batch"] or "all"), row["freeze"], row["precision"]]
        lines.append([*parts, f"{row['seconds']:.2f}", f"{row['peak_gb']:.1f}"])
    return markdown(["batch", "in parts of", "frozen", "precision", "a step, s", "peak memory, GB"], lines)


if __name__ == "__main__":
    main()
