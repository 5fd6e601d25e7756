"""A method's schedule made shorter or longer as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from pairsift.errors import InputError


def is_phase(option: str) -> bool:
    """Return whether a method's option is the length of a phase: `epochs`, `warmup_epochs` and so on."""
    return option == "epochs" or option.endswith("_epochs")


def scaled(method: str, options: Mapping[str, object], total: int) -> dict[str, int]:
    """Scale a method's phases to a number of epochs in all, in proportion; a phase that has any keeps one at least.

    Args:
        method: The method's name.
        options: Its options, among them the phases.
        total: Epochs in all.

    Returns:
        The new length of every phase; a phase of 0 epochs stays so.

    Raises:
        InputError: There are fewer epochs than phases, or no phase has any.
    """
    phases = {name: int(str(value)) for name, value in options.items() if is_phase(name)}
    used = {name: length for name, length in phases.items() if length > 0}
    if not used:
        raise InputError(f"--epochs is {total}, and {method} has no phase to scale: give its phases epochs instead")
    if total < len(used):
        names = ", ".join(f"--{method}.{name.replace('_', '-')}" for name in used)
        raise InputError(f"--epochs is {total}; {method} needs at least {len(used)}, one for each of {names}")
    shares = {name: total * length / sum(used.values()) for name, length in used.items()}
    lengths = dict.fromkeys(used, 1)
    for _ in range(total - len(used)):
        shortest = max(used, key=lambda name: shares[name] - lengths[name])
        lengths[shortest] += 1
    return {**phases, **lengths}
