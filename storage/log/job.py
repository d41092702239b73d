"""Slow work for a log in three steps, so that its owner need not wait for the disk.

    plan     the owner calls `log.plan_…`, which makes the job from the log as it is
    work     any thread: waits for the disk. The owner goes on meanwhile
    apply    the owner: the log takes in what was done, and checks whether it still fits
    abandon  the owner, in place of `apply`, where `work` failed

A `StepJob` goes from `apply` to another `work`, until it is over.

What must stay true: `work` changes nothing that the owner has in memory. The log may be appended to, cut or closed
while it runs, so `apply` trusts nothing that was read for the plan without a check.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from raylog.storage.log.state import LogState, while_open

_R = TypeVar("_R")


class Job(ABC, Generic[_R]):
    """One piece of slow work for one log. `_R` is what the owner learns from `apply`."""

    def __init__(self, log: LogState) -> None:
        self._log = log

    @property
    def has_work(self) -> bool:
        """Whether `work` has anything to do. Where it has not, it may be left out."""
        return True

    @abstractmethod
    def work(self) -> None:
        """Do what waits for the disk, on any thread."""

    def apply(self) -> _R:
        """Take the result into the log. LogOffline: the log has gone offline since."""
        return _apply(self._log, self)

    @abstractmethod
    def _take_in(self) -> _R:
        """Take the result in; the log is online."""

    def abandon(self) -> None:
        """Take note that `work` failed. Most jobs are planned anew the next time, and need nothing."""

    def run(self) -> _R:
        """All steps at once, on the owner's thread."""
        try:
            self.work()
        except BaseException:
            self.abandon()
            raise
        return self.apply()


@while_open
def _apply(_: LogState, job: Job[_R]) -> _R:
    return job._take_in()


class _Piece:
    """Work of one step. Several may ask for it, on any threads: it is done once, and all wait for that."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._doing = threading.Lock()
        self.is_done = False

    def do(self) -> None:
        with self._doing:
            if not self.is_done:
                self._work()
                self.is_done = True


class StepJob(Job["StepJob | None"]):
    """A job that takes turns with its owner: work → apply → work → … `apply` returns it until it is over.

    What must stay true: no step is taken before the work that it relies on is done, whoever carries the job out, and if
    several do.
    """

    def __init__(self, log: LogState) -> None:
        super().__init__(log)
        self._steps = self._run()
        self._piece: _Piece | None = None
        self._is_over = False
        self._failure: Exception | None = None

    @abstractmethod
    def _run(self) -> Iterator[Callable[[], object]]:
        """Take all steps, and yield between two of them the work that the next one relies on."""

    @property
    def has_work(self) -> bool:
        return self._piece is not None and not self._piece.is_done

    def work(self) -> None:
        if self._piece is not None:
            try:
                self._piece.do()
            except Exception as error:
                self._failure = error
                raise

    def _take_in(self) -> StepJob | None:
        self.take_step()
        return None if self._is_over else self

    def take_step(self) -> None:
        """Take the next step, if the work that it relies on is done. Another one may have taken that before."""
        if not (self._is_over or self.has_work):
            try:
                work = next(self._steps, None)
            except Exception as error:  # a step that failed is not taken again
                self._is_over, self._failure = True, error
                raise
            self._piece = None if work is None else _Piece(work)
            self._is_over = work is None

    def run(self) -> None:
        """All steps at once, on the owner's thread."""
        job: StepJob | None = self
        while job is not None:
            job = super().run()

    def settle_in_steps(self) -> Iterator[Callable[[], object]]:
        """Take all steps that are left, with the work for whoever asks to do."""
        while not self._is_over:
            if self.has_work:
                yield self.work
            self.take_step()
