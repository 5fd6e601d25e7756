"""The training loop. It knows no method by name."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import isfinite
from pathlib import Path
from shutil import disk_usage
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pairsift.arrays import Array, Bools, Ints
from pairsift.encode.features import Features
from pairsift.encode.parallel import map_ahead
from pairsift.errors import InputError
from pairsift.files import write_lines
from pairsift.loss.ranking import RankingLoss
from pairsift.match.base import Matcher
from pairsift.methods.base import Method, Notes, peer
from pairsift.pairs.pairs import Pairs
from pairsift.processes import ALONE, Processes
from pairsift.progress import part_of_stage, progress, write_sometimes
from pairsift.retrieve.gallery import evaluate
from pairsift.run_folder import CHECKPOINT, LOG
from pairsift.steps import Batch, Network, Observation, Phase, Prior, Request, Setting, Step, Term
from pairsift.train.batches import Gatherer, Likeness, cut, steps
from pairsift.train.checkpoint import pack, read_tensors, unpack, with_prefix, write_tensors
from pairsift.train.options import TrainOptions
from pairsift.train.precision import autocast_context, fast_products, takes_fast_products
from pairsift.train.record import epoch_summary, make_board
from pairsift.train.schedule import Ending, competing, ending, learning_rate, network_epochs
from pairsift.train.shares import Shares
from pairsift.train.teachers import VECTOR_BYTES, Teacher

OBSERVED_TOGETHER = 1024  # pairs whose negatives come from each other in the pass that divides, where that is cheap


@dataclass(frozen=True)
class Job:
    """The parts of a training run.

    `linear` turns a new matcher into a linear model, which competes with the networks on dev; None where there is none.
    `picture` has the number of the picture of each image: copies are one item in the recall on dev, and so are equal
    captions; with None it is the papers' protocol.
    `require_held` is called before anything is written: it raises an error where another process writes the folder.
    `processes` train together; the first of them decides and writes.
    """

    pairs: Pairs
    features: Features
    matcher: Callable[[], Matcher]
    method: Method
    ranking: RankingLoss
    options: TrainOptions
    folder: Path
    progress: bool = True
    prior: Prior | None = None
    likeness: Likeness | None = None
    linear: Callable[[Matcher], None] | None = None
    require_held: Callable[[], None] = lambda: None
    picture: Ints | None = None
    processes: Processes = ALONE


@dataclass
class Position:
    """The next step of a run, by epoch and network, with the best checkpoint and the sums of the epoch so far."""

    epoch: int = 0
    network: int = 0
    step: int = 0
    best_epoch: int = -1
    best_rsum: float = -1.0
    seconds: float = 0.0
    restarted: int = -1  # the last epoch that began with new networks
    endings: list[Ending] = field(default_factory=list)
    sums: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """The trainer of a job's networks.

    After `run`, `networks` hold the weights with the best dev rSum, or the last epoch's without pairs in dev.

    Attributes:
        method: The job's method once it has begun, with its state.
        fast_products: Whether steps multiply in bfloat16; a resumed run goes on as it began.
    """

    def __init__(self, job: Job) -> None:
        pairs = len(job.pairs.ids("train"))
        self.has_dev = bool(len(job.pairs.ids("dev")))
        self.job = job = replace(job, options=job.options.with_batch_size(pairs))
        self.device = pick_device(job.options.device)
        self.processes, self.shares = job.processes, Shares(job.processes)
        self.board = make_board(job.folder) if job.options.tensorboard and self.processes.first else None
        self.networks = [self._network(k) for k in range(job.method.networks)]
        self.fast_products = self.processes.from_first(
            lambda: takes_fast_products(self.device, job.options, self.networks[0].matcher)
        )
        self.teachers: list[Teacher] = []
        self.linear = self._linear()
        self.gather = Gatherer(job.features, job.pairs.image_of, self.device, job.likeness, job.processes)
        self.position = Position()
        self.log: list[dict[str, Any]] = []
        self._saved = time.monotonic()
        self.method = job.method.begin(self._setting())
        self.phases = [phase for phase in self.method.phases() for _ in range(phase.epochs)]
        self.competing = competing(self.phases)
        self.optimizers = [self._optimizer(network) for network in self.networks] if self.phases else []

    @property
    def matched(self) -> Bools | None:
        """Whether each training pair truly matches, (n,); None where it is unknown."""
        setting = self.method.setting
        return None if setting.matched is None else setting.matched[setting.ids]

    @property
    def keeps_linear(self) -> bool:
        """Whether the linear model is the best on dev so far."""
        return bool(self.linear) and self.has_dev and self.position.best_epoch < 0

    def _setting(self) -> Setting:
        """Return the setting of the method."""
        job = self.job
        size = job.options.batch_size
        assert size is not None, "the options have a batch size"
        return Setting(
            job.pairs.ids("train"),
            job.pairs.image_of,
            job.pairs.n_images,
            None if job.pairs.true_image_of is None else ~job.pairs.mismatched(),
            job.ranking,
            job.options.seed,
            len(self.networks),
            size,
            job.prior,
            self._after_step,
            job.pairs.verified_ids(),
            self.teachers,
        )

    def _after_step(self, k: int, gradients: Mapping[str, Tensor], momentum: bool) -> dict[str, Tensor]:
        """Return parameters after one more step, as described at `Setting.after_step`."""
        return after_step(self.networks[k], self.optimizers[k], self.job.options.max_norm, gradients, momentum)

    def _network(self, k: int, epoch: int = 0) -> Network:
        """Return network k as it begins in an epoch, initialised with its own seed."""
        torch.manual_seed(seed_of(self.job.options.seed, 1, k, *([epoch] if epoch else [])))
        matcher = self.job.matcher()
        network = Network(matcher, self.job.method.head(matcher.dim)).to(self.device)
        self.shares.divide(matcher)
        self.processes.copy_from_first(network.state_dict().values())
        return network

    def _linear(self) -> list[Network]:
        """Return the linear model as a network, or nothing if there is none."""
        if self.job.linear is None:
            return []
        network = self._network(0)
        if self.processes.first:
            self.job.linear(network.matcher)
        self.processes.copy_from_first(network.state_dict().values())
        return [network.eval().requires_grad_(False)]

    def _optimizer(self, network: Network) -> torch.optim.AdamW:
        """Return a new optimizer of a network."""
        groups = parameter_groups(network, self.job.options.weight_decay)
        betas, epsilon = network.matcher.adam
        return torch.optim.AdamW(groups, self.job.options.lr, betas, epsilon, fused=True)

    def _restart(self, epoch: int, teachers: bool) -> None:
        """Replace the networks by new ones. The old networks become teachers or are dropped.

        Where the linear model is better on dev than the present networks, it becomes their teacher instead.
        """
        self.position.restarted = epoch
        found = self.networks if teachers else []
        if found and self.linear and self.recall(self.linear)["rsum"] > self.recall(found)["rsum"]:
            found = self.linear
        self._teach_by(found)
        self.networks[:] = [self._network(k, epoch) for k in range(len(self.networks))]
        self.optimizers[:] = [self._optimizer(network) for network in self.networks]

    def _teach_by(self, networks: Sequence[Network]) -> None:
        """Take these networks as the teachers."""
        self.teachers[:] = [Teacher(network) for network in networks]
        job, ids, limit = self.job, self.method.setting.ids, VECTOR_BYTES // max(1, len(networks))
        for teacher in self.teachers:
            room = self.processes.from_first(lambda: disk_usage(job.folder).free) // (2 * self.processes.count)
            with fast_products(self.fast_products), self._autocast(teacher):
                teacher.keep(job.features, ids, job.pairs.image_of, limit, job.folder, room)

    def run(self, resume: bool = False) -> None:
        """Train to the end, from the start or from the folder's checkpoint."""
        if resume and self.processes.from_first((self.job.folder / CHECKPOINT).exists):
            self._load()
        if self.position == Position():
            if self.networks[0].matcher.starts_trained or not self.phases:
                self._keep_if_best(self.networks, -1, self.recall(self.networks))
            if self.linear:
                self._keep_if_best(self.linear * len(self.networks), -1, self.recall(self.linear))
        while self.position.epoch < len(self.phases):
            epoch, began = self.position.epoch, time.monotonic()
            phase = self.phases[epoch]
            if self.position.network == 0 and self.position.step == 0:
                self._begin(epoch, phase)
            n_pairs = 0
            for k in range(self.position.network, len(self.networks)):
                if phase.observe and phase.in_turn and self.position.step == 0:
                    self._observe(epoch, [peer(k, len(self.networks))])
                with part_of_stage(epoch * len(self.networks) + k, len(self.phases) * len(self.networks)):
                    n_pairs += self._train(epoch, k, phase)
            self._finish(epoch, phase, n_pairs, time.monotonic() - began)
        if not self.phases:
            self.save()
        weights, _ = self._read(self.job.folder / "model" / "best.safetensors")
        for k, network in enumerate(self.networks):
            network.load_state_dict(with_prefix(weights, f"{k}/"))

    def _begin(self, epoch: int, phase: Phase) -> None:
        """Prepare an epoch: new networks or optimizers where its phase begins with them, and the pass before it."""
        self.position.sums = [{} for _ in self.networks]
        if phase.restarts and epoch == network_epochs(self.phases, epoch)[0] != self.position.restarted:
            self._restart(epoch, phase.teachers)
        if phase.new_optimizers and (epoch == 0 or self.phases[epoch - 1] is not phase):
            self.optimizers[:] = [self._optimizer(network) for network in self.networks]
        for network in self.networks:
            self.processes.copy_from_first(network.state_dict().values())  # machines may round differently
        if phase.observe and not phase.in_turn:
            self._observe(epoch)

    @torch.no_grad()
    def _observe(self, epoch: int, passing: Sequence[int] | None = None) -> None:
        """Pass all training pairs through these networks, or all, and update the method's state by the notes.

        Of several processes, each passes every so many of the blocks.
        """
        method, processes = self.method, self.processes
        ids = method.setting.ids
        order = np.random.default_rng((self.job.options.seed, 3, epoch)).permutation(len(ids))
        factorises = all(network.matcher.factorises for network in self.networks)
        size = OBSERVED_TOGETHER if factorises else method.setting.batch_size
        notes_of_networks: list[dict[str, Array]] = [{} for _ in self.networks]
        for k in range(len(self.networks)) if passing is None else passing:
            network, notes = self.networks[k].eval(), notes_of_networks[k]
            blocks = cut(order, size)
            parts = blocks[processes.rank :: processes.count]
            requests = [Request(ids[rows], undivided=True) for rows in parts]
            for rows, batch in zip(parts, map_ahead(self.gather, requests), strict=True):
                with self._autocast(network):
                    values = method.observe(Observation.make(network, k, batch))
                for name, value in values.items():
                    array = value.float().cpu().numpy()
                    notes.setdefault(name, np.zeros((len(ids), *array.shape[1:]), np.float32))[rows] = array
            owned = [blocks[rank :: processes.count] for rank in range(processes.count)]
            processes.collect(notes, [np.concatenate([order[:0], *own]) for own in owned])
        self._update(notes_of_networks, epoch)

    def _update(self, notes: Notes, epoch: int) -> None:
        """Update the method's state by the notes of a pass: once, also where there are several processes."""

        def update() -> dict[str, Array]:
            self.method.update(notes, epoch)
            return self.method.arrays()

        arrays = self.processes.from_first(update)
        if not self.processes.first:
            self.method = self.job.method.begin(self.method.setting)
            self.method.resume(arrays)

    def _train(self, epoch: int, k: int, phase: Phase) -> int:
        """Train one network for the rest of an epoch, and return the number of pairs that it saw."""
        options, method, network = self.job.options, self.method, self.networks[k]
        if self.position.step == 0:
            torch.manual_seed(seed_of(options.seed, 2, epoch, k))
        size = phase.batch_size or method.setting.batch_size
        plan = steps(method, phase, k, size, (options.seed, 4, epoch))
        first, last = network_epochs(self.phases, epoch)
        end = next((end for end in self.position.endings if end.first == first), None)
        planned = last - first if end is None else end.planned
        within = end if end is not None and epoch >= end.begin else None
        warmup = sum(phase.warm for phase in self.phases[first:last])
        n_steps = len(cut(method.setting.ids, method.setting.batch_size))
        title = f"epoch {epoch + 1}/{len(self.phases)} {phase.name}, network {k}"
        n_pairs = sum(len(ids) for subsets in plan[self.position.step :] for ids in subsets.values())
        network.train()

        def gather(subsets: dict[str, Ints]) -> dict[str, Batch]:
            return {name: self.gather(request) for name, request in method.requests(subsets, k).items()}

        with progress(n_pairs, title, "pairs", self.job.progress) as count, fast_products(self.fast_products):
            for batches in map_ahead(gather, plan[self.position.step :]):
                part = self.position.step / len(plan)
                rate = learning_rate(options, epoch - first, part, planned, warmup, n_steps, within)
                for group in self.optimizers[k].param_groups:
                    group["lr"] = rate * group["speed"]
                with self.shares.step():
                    self._take(Step(self.networks, k, batches, phase, rate / options.lr))
                count(sum(map(len, plan[self.position.step].values())))
                self.position.step += 1
                if time.monotonic() - self._saved > 60 * options.checkpoint_minutes:
                    self.save()
        self.position.network, self.position.step = k + 1, 0
        return n_pairs

    def _autocast(self, network: Network) -> torch.autocast:
        return autocast_context(self.device, self.job.options, network.matcher)

    def _take(self, step: Step) -> None:
        """Take a step of the method: one optimizer step, or several one after the other."""
        updates = self.method.updates(step)
        while True:
            with self._autocast(step.network):
                terms = next(updates, None)
            if terms is None:
                break
            self._descend(step.k, terms)
        sums = self.position.sums[step.k]
        sums["steps"] = sums.get("steps", 0.0) + 1

    def _descend(self, k: int, terms: Sequence[Term]) -> None:
        """Take one optimizer step on the weighted sum of the reduced terms."""
        network, optimizer = self.networks[k], self.optimizers[k]
        parts = {term.name: term.reduced() for term in terms}
        if len(parts) < len(terms):
            raise InputError(f"two terms of a step have one name: {', '.join(term.name for term in terms)}")
        loss = torch.stack([parts[term.name] * term.weight for term in terms]).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.job.options.max_norm:
            nn.utils.clip_grad_norm_(network.parameters(), self.job.options.max_norm)
        optimizer.step()
        sums = self.position.sums[k]
        for name, value in parts.items():
            number = float(value.detach())
            if not isfinite(number):
                place = f"step {self.position.step + 1} of epoch {self.position.epoch + 1}, network {k}"
                raise InputError(
                    f"training diverged: the loss {name} is {number} in {place}; lr is {self.job.options.lr}, try less"
                )
            sums[name] = sums.get(name, 0.0) + number

    def _finish(self, epoch: int, phase: Phase, n_pairs: int, seconds: float) -> None:
        """Evaluate on dev, keep the weights if they are the best, write the log and the checkpoint."""
        dev = self.recall(self.networks)
        rsum = dev["rsum"]
        if self.competing[epoch]:
            self._keep_if_best(self.networks, epoch, dev)
        losses = {
            f"network_{k}": {name: value / sums["steps"] for name, value in sums.items() if name != "steps"}
            for k, sums in enumerate(self.position.sums)
        }
        line: dict[str, Any] = {
            "event": "epoch",
            "epoch": epoch,
            "phase": phase.name,
            "loss": losses,
            "dev": dev,
            **self.method.facts(),
            "state": epoch_summary(self.method.values_of_pairs(), self.matched),
            "seconds": round(seconds, 3),
            "pairs_per_second": round(n_pairs / max(seconds, 1e-9)),
        }
        self.log.append(line)
        if self.board is not None:
            self.board(line, epoch)
        if self.job.progress:
            summary = f"epoch {epoch + 1}/{len(self.phases)} {phase.name}: dev rSum {rsum:.1f}, {seconds:.1f} s"
            write_sometimes(summary)
        self.position.seconds += seconds
        self.position.epoch, self.position.network = epoch + 1, 0
        self._end_stage(epoch, phase)
        self.save()

    def _end_stage(self, epoch: int, phase: Phase) -> None:
        """Bring a stage to its end where its phase may end and its recall on dev makes no more progress."""
        first, last = network_epochs(self.phases, epoch)
        ends = any(end.first == first for end in self.position.endings)
        if not phase.may_end or not self.has_dev or ends or self.job.options.schedule != "one_cycle":
            return
        rsums = [line["dev"]["rsum"] for line in self.log[first:]]
        steps = len(cut(self.method.setting.ids, self.method.setting.batch_size))
        end = ending(rsums, first, last - first, steps)
        if end is not None:
            self.position.endings.append(end)
            self._shorten(end)

    def _shorten(self, end: Ending) -> None:
        """Take the epochs out of the plan that a stage does not need."""
        del self.phases[end.end : end.first + end.planned]
        self.competing = competing(self.phases)

    def recall(self, networks: Sequence[Network]) -> dict[str, float]:
        """Return the recall of an ensemble on dev; without pairs in dev, an rSum of 0."""
        if not self.has_dev:
            return {"rsum": 0.0}
        dev = [network.matcher for network in networks], self.job.features, self.job.pairs, "dev"

        def measure() -> dict[str, float]:
            with autocast_context(self.device, self.job.options):
                return evaluate(*dev, picture=self.job.picture)["ensemble"]

        return self.processes.from_first(measure)

    def _keep_if_best(self, networks: Sequence[Network], epoch: int, dev: Mapping[str, float]) -> None:
        """Write the networks' weights where their recall on dev is the best so far; epoch -1 is before all training."""
        if self.has_dev and dev["rsum"] <= self.position.best_rsum:
            return
        self.position.best_rsum, self.position.best_epoch = dev["rsum"], epoch
        if not self.processes.first:
            return
        self.job.require_held()
        weights: dict[str, Tensor] = {}
        for k, network in enumerate(networks):
            weights |= {f"{k}/{name}": value for name, value in network.state_dict().items()}
        write_tensors(self.job.folder / "model" / "best.safetensors", weights)

    def remove_checkpoints(self) -> None:
        """Remove what the training needed to go on."""
        (self.job.folder / CHECKPOINT).unlink(missing_ok=True)
        (self.job.folder / "model" / "best.safetensors").unlink(missing_ok=True)

    def save(self) -> None:
        """Write a checkpoint; training continues from it at the next step."""
        if not self.processes.first:
            return
        self.job.require_held()
        tensors = pack(self.networks, self.optimizers, self.method.arrays())
        for k, network in enumerate(self.teachers):
            tensors |= {f"teacher/{k}/{name}": value for name, value in network.state_dict().items()}
        tensors["rng"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["rng_cuda"] = torch.cuda.get_rng_state(self.device)
        phases = [phase.name for phase in self.phases]
        facts: dict[str, object] = {"position": asdict(self.position), "log": self.log, "phases": phases}
        facts |= {"pairs": hash_of(self.method.setting.ids), "fast_products": self.fast_products}
        write_tensors(self.job.folder / CHECKPOINT, tensors, facts)
        self._write_log()
        self._saved = time.monotonic()

    def _read(self, path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return the tensors and facts of a file, which the first process reads."""
        return self.processes.from_first(lambda: read_tensors(path))

    def _write_log(self) -> None:
        if not self.processes.first:
            return
        write_lines(self.job.folder / LOG, self.log)

    def _load(self) -> None:
        """Restore everything from the checkpoint; an epoch of other training pairs begins again."""
        tensors, facts = self._read(self.job.folder / CHECKPOINT)
        position: dict[str, Any] = facts["position"]  # type: ignore[assignment]
        endings = [Ending(**end) for end in position.pop("endings", [])]
        for end in endings:
            self._shorten(end)
        if facts.get("phases") != [phase.name for phase in self.phases]:
            raise InputError(
                f"{self.job.folder / CHECKPOINT}: has other phases than this run: fit again to another --out"
            )
        self.method.resume(unpack(tensors, self.networks, self.optimizers))
        self.fast_products = bool(facts.get("fast_products"))
        teachers = {int(name.split("/")[1]) for name in tensors if name.startswith("teacher/")}
        found = [self._network(k) for k in sorted(teachers)]
        for k, network in enumerate(found):
            network.load_state_dict(with_prefix(tensors, f"teacher/{k}/"))
        self._teach_by(found)
        self.position = Position(**position, endings=endings)
        if facts.get("pairs") != hash_of(self.method.setting.ids):
            self.position.network = self.position.step = 0
        self.log = list(facts["log"])  # type: ignore[call-overload]
        self._write_log()  # a kill may have come between the checkpoint and its log
        torch.set_rng_state(tensors["rng"])
        if self.device.type == "cuda" and "rng_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng_cuda"], self.device)


def after_step(
    network: nn.Module, optimizer: torch.optim.AdamW, max_norm: float, gradients: Mapping[str, Tensor], momentum: bool
) -> dict[str, Tensor]:
    """Return the parameters after one more step of the loop: clipping, then AdamW with its moments and rate.

    A second optimizer takes the step on copies, so that it is the same step to the last bit.

    Args:
        network: The network with the parameters.
        optimizer: The optimizer of all its parameters.
        max_norm: Largest norm of the gradients; 0 for no clipping.
        gradients: Gradients by parameter name; a parameter without a gradient stays unchanged.
        momentum: Whether the step has the direction of a real step, nine tenths of it from earlier gradients; if not,
            it has the direction of these gradients, and each entry is still scaled by its second moment.

    Returns:
        All parameters by name, without a graph. Network, optimizer and gradients are unchanged.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    copies = {name: parameter.detach().clone() for parameter, name in names.items()}
    for name, gradient in gradients.items():
        copies[name].grad = gradient.detach().clone()
    groups = [
        {**group, "params": [copies[names[parameter]] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    double = torch.optim.AdamW(groups)
    if max_norm:
        nn.utils.clip_grad_norm_(copies.values(), max_norm)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            copy = copies[names[parameter]]
            moments = {key: value.clone() for key, value in optimizer.state.get(parameter, {}).items()}
            double.state[copy] = moments
            if moments and not momentum and copy.grad is not None:  # as if every earlier gradient were this gradient
                moments["exp_avg"].copy_(copy.grad * (1 - group["betas"][0] ** float(moments["step"])))
    double.step()
    return {name: copy.detach() for name, copy in copies.items()}


def hash_of(ids: Ints) -> str:
    """Return 16 hex digits over ids of pairs."""
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()[:16]


def seed_of(*parts: int) -> int:
    """Return a seed for one purpose, epoch and network of a run."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint32)[0])


def parameter_groups(network: Network, weight_decay: float) -> list[dict[str, object]]:
    """Return the optimizer's parameter groups of a network.

    Matrices decay; biases, norms and temperatures do not. The head of a method has its own rate, and parameters of the
    matcher may have theirs.
    """
    matcher, head = network.matcher, network.head
    parts = [[(one, matcher.speed(name)) for name, one in matcher.named_parameters()]]
    parts += [] if head is None else [[(one, matcher.head_speed) for one in head.parameters()]]
    groups: list[dict[str, object]] = []
    for part in parts:
        for speed, matrices in product(dict.fromkeys(own for _, own in part), (True, False)):
            members = [one for one, own in part if own == speed and (one.ndim > 1) == matrices]
            decay = weight_decay if matrices else 0.0
            groups += [{"params": members, "weight_decay": decay, "speed": speed}] if members else []
    return groups


def pick_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the first GPU if there is one, else the CPU.

    Raises:
        InputError: The device is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device {name!r} is not available here; use auto or cpu") from None
    return device
