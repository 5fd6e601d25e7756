"""Rows as benchmarks/results/flickr8k.json has them."""


def row(method: str, seed: int, rsum: float, noise: float = 0.4, options=("precision=bf16",)) -> dict:
    return {
        "matcher": "two_tower",
        "method": method,
        "loss": "infonce",
        "text_encoder": "wordllama",
        "noise": noise,
        "seed": seed,
        "rsum": rsum,
        "rsum_single": rsum - 5,
        "dev_rsum": rsum + 1,
        "networks": 2,
        "auroc": 0.9,
        "noise_rate": {"estimated": 0.41, "true": 0.4},
        "options": list(options),
    }
