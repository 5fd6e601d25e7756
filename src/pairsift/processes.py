"""The processes that train together under torchrun, and the end of all where one is lost.

`torch.distributed` carries what they exchange. Its store carries a sign of life of every process, by which a lost one
is found: one that was killed closes its connections, but one that was stopped, or whose machine is gone, does not.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count as numbers
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pairsift.arrays import Array, Ints
from pairsift.cores import rank_and_count
from pairsift.errors import InputError, LostProcessError, ToldElsewhereError

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_c10d import Store

BEAT = 1.0  # seconds from one sign of life to the next
LOST_AFTER = 15.0  # seconds without a sign of life after which a process counts as lost
SUSPECT_AFTER = 5.0  # the same where a connection has broken, or torchrun ends this process
LEAVE = 5.0  # seconds that a process has to end by itself, once another one is lost
TOGETHER = timedelta(minutes=5)  # longest time that a process waits for others which live, but do not come
LEFT = "left"  # last sign of life of a process that ends
CHUNK = 2**24  # values that are sent at once
_joins = numbers(1)  # how often the processes have joined
_served: list[Any] = []  # the store of a first process without torchrun's, which others may still read
Result = TypeVar("Result")


class Processes:
    """The processes of a job; one alone, unless `joined` makes it.

    Everything random and every plan is the same in all of them. The first decides and writes.

    Attributes:
        rank: Number of this process, from 0.
        count: Number of processes.
    """

    def __init__(self, rank: int = 0, count: int = 1, watch: _Watch | None = None) -> None:
        self.rank, self.count, self._watch, self._meetings = rank, count, watch, 0

    @property
    def first(self) -> bool:
        """Whether this is the process that decides and writes."""
        return self.rank == 0

    def divides(self, total: int) -> bool:
        """Return whether a batch of this many items is divided: every process then has two of them at least."""
        return self.count > 1 and total >= 2 * self.count

    def share(self, total: int, rank: int | None = None) -> slice:
        """Return the rows of a batch of `total` items that belong to a process, by default to this one."""
        rank = self.rank if rank is None else rank
        size, more = divmod(total, self.count)
        start = rank * size + min(rank, more)
        return slice(start, start + size + (rank < more))

    def from_first(self, work: Callable[[], Result]) -> Result:
        """Do some work in the first process, and return its result in all; the others wait, however long it takes."""
        if self.count == 1:
            return work()
        import torch.distributed as dist

        found: list[Any] = [work() if self.first else None]
        self._meet()
        with self._exchanging():
            dist.broadcast_object_list(found, 0)
        result: Result = found[0]
        return result

    def hear_first(self) -> Any:
        """Return the result of `from_first` in a process that is not the first."""
        return self.from_first(lambda: None)

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors the values that they have in the first process."""
        if self.count == 1:
            return
        import torch.distributed as dist

        self._meet()
        with self._exchanging():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def add_up(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes, and return it."""
        import torch.distributed as dist

        with self._exchanging():
            dist.all_reduce(tensor)
        return tensor

    def anywhere(self, flags: Sequence[bool]) -> list[bool]:
        """Return for each flag whether it is set in any process."""
        import torch
        import torch.distributed as dist

        found = torch.tensor(flags, dtype=torch.uint8)
        with self._exchanging():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return [bool(flag) for flag in found.tolist()]

    def gather(self, tensor: Tensor) -> Tensor:
        """Return a tensor of all processes, of one shape in all, (processes, ...)."""
        import torch.distributed as dist

        every = tensor.new_empty((self.count, *tensor.shape))
        with self._exchanging():
            dist.all_gather(list(every.unbind()), tensor.contiguous())
        return every

    def collect(self, arrays: dict[str, Array], rows: Sequence[Ints]) -> None:
        """Fill the first process's arrays with the rows that the others have filled in theirs.

        Args:
            arrays: By name, values of n items, (n, ...); a process without rows may have none.
            rows: The rows of each process.
        """
        if self.count == 1:
            return
        import torch
        import torch.distributed as dist

        self._meet()
        senders = range(1, self.count) if self.first else [self.rank]
        for sender in senders:
            for array in arrays.values() if len(rows[sender]) else ():
                width = max(1, array[:1].size)
                for part in np.array_split(rows[sender], len(rows[sender]) * width // CHUNK + 1):
                    values = torch.from_numpy(np.ascontiguousarray(array[part]))
                    with self._exchanging():
                        dist.recv(values, sender) if self.first else dist.send(values, 0)
                    if self.first:
                        array[part] = values.numpy()

    def may_resume(self) -> None:
        """Note that there is a run by now, which `--resume` continues."""
        if self._watch is not None:
            self._watch.remedy = "; repeat the command with --resume to continue the run"

    def _meet(self) -> None:
        """Wait until all processes are here, as long as they give signs of life."""
        assert self._watch is not None
        self._meetings += 1
        self._watch.meet(f"meeting/{self._meetings}", self.count)

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Turn what a broken exchange raises into one line."""
        assert self._watch is not None
        self._watch.check()
        try:
            yield
        except RuntimeError as error:
            self._watch.explain(error)


ALONE = Processes()


class _Watch:
    """A thread that gives signs of life, and that ends this process where another one gives none.

    The thread decides; the process then ends by an error where it can, and within seconds in any case.
    """

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self.store, self.rank, self.count = store, rank, count
        self.remedy = ""
        self._verdict: str | None = None
        self._suspicion: str | None = None
        self._decided, self._closed, self._leaving = threading.Event(), threading.Event(), threading.Event()
        self._keys = [f"life/{number}" for number in range(count)]
        self.store.set(self._keys[rank], "0")
        self._thread = threading.Thread(target=self._run, name="processes", daemon=True)

    def start(self) -> None:
        """Start the thread, once all processes are there."""
        self._thread.start()

    def check(self) -> None:
        """Raise an error if another process was lost.

        Raises:
            LostProcessError: It was.
        """
        if self._decided.is_set():
            raise LostProcessError(self._verdict)

    def meet(self, key: str, count: int) -> None:
        """Wait until as many processes are here."""
        pause = 0.0005
        try:
            here = self.store.add(key, 1)
            while here < count:
                self.check()
                time.sleep(pause)
                pause = min(2 * pause, 0.1)
                here = self.store.add(key, 0)
        except RuntimeError as error:
            self.explain(error)

    def suspect(self, what: str) -> None:
        """Look closer, because something has happened that a lost process explains."""
        self._suspicion = self._suspicion or what

    def explain(self, error: RuntimeError) -> None:
        """Raise a line that says which process was lost, after an exchange that broke.

        Raises:
            LostProcessError: In any case.
        """
        self.suspect(f"the exchange with the other processes broke ({str(error).splitlines()[0]})")
        self._decided.wait(4 * LOST_AFTER)
        raise LostProcessError(self._verdict or self._suspicion) from error

    def close(self, error: BaseException | None) -> BaseException | None:
        """End the watch, and return the error that the process ends by: a reason is said once on a machine."""
        with suppress(RuntimeError):
            error = None if error is None else self._told(error)
            self._leaving.set()
            self.store.set(self._keys[self.rank], LEFT)
            self._linger(None if error is None else 3 * BEAT)
        self._closed.set()
        self._thread.join(2 * BEAT)
        return error

    def _linger(self, seconds: float | None) -> None:
        """Wait until all others have left, since the first process may hold the store; forever where all is well."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            if all(sign == LEFT.encode() for sign in self.store.multi_get(self._keys)):
                return
            if end is None:
                self.check()
            time.sleep(BEAT / 10)

    def _told(self, error: BaseException) -> BaseException:
        """Return the error, or one without words where another process says the same."""
        if isinstance(error, LostProcessError):
            return error if self._speaks() else ToldElsewhereError()
        words = " ".join(str(error).split()) if isinstance(error, InputError) else type(error).__name__
        reason = f"{self.rank} {words}"
        known = self.store.compare_set("reason", "", reason).decode()
        if known != reason and known.partition(" ")[2] == words:
            return ToldElsewhereError()
        self._speaks()
        return error

    def _speaks(self) -> bool:
        """Return whether this process is the one on its machine that says why the job ends."""
        mine = str(self.rank)
        try:
            return self.store.compare_set(f"speaker/{os.environ.get('GROUP_RANK', '0')}", "", mine).decode() == mine
        except RuntimeError:
            return True

    def _run(self) -> None:
        """Give signs of life and read those of others, until the process ends."""
        heard = [(b"", time.monotonic())] * self.count
        number, suspected = 0, 0.0
        reached = time.monotonic()
        while self._verdict is None and not self._closed.wait(BEAT):
            number += 1
            suspected += BEAT if self._suspicion else 0.0
            try:
                signs = self._exchange(number)
            except RuntimeError:
                if time.monotonic() - reached > (SUSPECT_AFTER if self._suspicion else LOST_AFTER):
                    self._decide("the process that all others are connected with was lost")
                continue
            reached = now = time.monotonic()
            heard = [(s, now if s != old else since) for s, (old, since) in zip(signs, heard, strict=True)]
            self._judge([0.0 if sign == LEFT.encode() else now - since for sign, since in heard], suspected)
        if self._verdict is not None and not self._closed.wait(LEAVE):
            self._end()

    def _exchange(self, number: int) -> list[bytes]:
        """Give a sign of life, and return those of all."""
        self.store.set(self._keys[self.rank], LEFT if self._leaving.is_set() else str(number))
        if self.store.check(["reason"]):
            rank, _, words = self.store.get("reason").decode().partition(" ")
            if int(rank) != self.rank:
                self._decide(f"the process with rank {rank} (of {self.count}) has stopped: {words}", "")
        return self.store.multi_get(self._keys)

    def _judge(self, silent: list[float], suspected: float) -> None:
        """Decide whether a process was lost.

        Args:
            silent: Seconds since the last sign of life of each process.
            suspected: Seconds since something has happened that a lost process explains.
        """
        limit = SUSPECT_AFTER if self._suspicion else LOST_AFTER
        lost = [rank for rank, seconds in enumerate(silent) if seconds > limit and rank != self.rank]
        if lost:
            who = f"the process with rank {lost[0]} (of {self.count}) was lost"
            self._decide(f"{who}: no sign of life for {silent[lost[0]]:.0f} seconds")
        elif suspected > SUSPECT_AFTER + 3 * BEAT and self._suspicion:
            self._decide(self._suspicion)

    def _decide(self, verdict: str, remedy: str | None = None) -> None:
        """Decide that the process ends."""
        if self._verdict is None:
            self._verdict = verdict + (self.remedy if remedy is None else remedy)
            self._decided.set()

    def _end(self) -> None:
        """End a process that cannot end by itself, because it waits for the lost one."""
        if self._speaks():
            print(f"pairsift: {self._verdict}", file=sys.stderr, flush=True)
        os._exit(2)


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun has started, as long as the block lasts; without torchrun, be alone.

    At the end they wait for each other. Where the block raises an error in one, all end.

    Args:
        device: The device of the training, as options name it; with a GPU, each process takes the one of its number.

    Raises:
        InputError: The processes cannot reach each other, or all of them should use one GPU.
        LostProcessError: Another process was lost or has stopped.
    """
    rank, count = rank_and_count()
    if count == 1:
        yield ALONE
        return
    watch = _join(device, rank, count)
    before = _hear_end(watch)
    if rank:
        logging.getLogger("pairsift").setLevel(logging.ERROR)  # the first process warns
    error: BaseException | None = None
    try:
        try:
            yield Processes(rank, count, watch)
        except BaseException as raised:
            error = raised
        try:
            ended = watch.close(error)
        except LostProcessError as lost:
            ended = watch.close(lost)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    if ended is error and error is not None:
        raise error
    if ended is not None:
        raise ended from None
    import torch.distributed as dist

    dist.destroy_process_group()


def _join(device: str, rank: int, count: int) -> _Watch:
    """Connect the processes, and return the watch over them."""
    import torch
    import torch.distributed as dist

    gpus = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if gpus and ":" in device:
        raise InputError(f"each of several processes takes the GPU of its number: give cuda in the place of {device}")
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        prefix = f"pairsift/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_joins)}"
        serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        stores = []
        for name, host in (("exchange", serves), ("watch", False)):  # two, since a wait in the first would block signs
            store = dist.TCPStore(*place, count, host, TOGETHER, multi_tenant=True)  # type: ignore[attr-defined]
            _served.extend([store] if host and not _served else [])
            stores.append(dist.PrefixStore(f"{prefix}/{name}", store))  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=stores[0], rank=rank, world_size=count, timeout=TOGETHER)
        watch = _Watch(stores[1], rank, count)
        dist.barrier()
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(
            f"process {rank} of {count} cannot reach the others ({str(error).splitlines()[0]}): start all with torchrun"
        ) from error
    watch.start()
    return watch


def _hear_end(watch: _Watch) -> Any:
    """Let torchrun's SIGTERM, which follows the loss of a process, begin a search for that process."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def heard(number: int, frame: object) -> None:
        watch.suspect("stopped by SIGTERM")

    return signal.signal(signal.SIGTERM, heard)
