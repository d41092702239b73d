"""Calls to the controller's actor, with an end to every one of them.

    answered                              the answer, or the typed error that the controller raised
    the controller is gone, or going      asked again if asking twice does no harm; else ControllerLost (rule 27)
    none serves yet                       asked again: nothing was done
    out of time                           AdminTimedOut, or ClusterNotReady where that leaves no doubt

A controller that has been started again is found under the same name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

from raylog.actors.kernel.wait_notices import NO_ANSWER, WaitNotices
from raylog.actors.protocol.actor_names import CONTROLLER, namespace
from raylog.api.connection.interruptible_waits import wait_in_slices
from raylog.api.connection.progress import Progress
from raylog.errors import (
    AdminTimedOut,
    ClusterNotFound,
    ClusterNotReady,
    ControllerLost,
    ControllerNotReady,
    RaylogError,
    RayUnreachable,
)

_PAUSE_SECONDS: Final = 0.1
_GONE: Final = (ActorDiedError, ActorUnavailableError)
_T = TypeVar("_T")


class ControllerCalls:
    """The controller of the cluster of this name."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._namespace = namespace(cluster)
        self._actor: Any = None

    def ask(
        self, call: str, *arguments: object, timeout: float, repeatable: bool = False, asked: str | None = None
    ) -> Any:
        """Call this method of the controller's actor. `repeatable`: to do it twice is the same as to do it once.

        `asked`: what errors call it, for people who have not asked for that method by its name.
        RayUnreachable: this process has left Ray. Ray itself would start another one, in which there is no cluster.
        """
        if not ray.is_initialized():
            raise RayUnreachable("the address it was at", "this process has left it (`ray.shutdown`)")
        asked = asked or call
        with Progress(f"waiting for {asked}") as progress:
            return self._ask_until(call, arguments, timeout, repeatable, asked, progress)

    def _ask_until(
        self, call: str, arguments: tuple[object, ...], timeout: float, repeatable: bool, asked: str, progress: Progress
    ) -> Any:
        deadline = time.monotonic() + timeout
        reason = "it has no controller"
        was_lost = False
        notices = WaitNotices(time.monotonic)
        awaited = f"an answer of the controller of {self.cluster!r} to {asked}"
        notices.waits(awaited, NO_ANSWER)

        def tell() -> None:
            notices.tell_if_due()
            progress.tell()

        while (left := deadline - time.monotonic()) > 0:
            try:
                return self._ask_once(call, arguments, left, tell)
            except ControllerNotReady as error:
                reason = error.describe()
            except GetTimeoutError:
                if repeatable:  # it changes nothing
                    raise ClusterNotReady(self.cluster, round(timeout * 1000), f"{asked} is not answered") from None
                raise AdminTimedOut(asked, round(timeout * 1000)) from None
            except _GONE as error:
                if not repeatable:
                    raise ControllerLost(self.cluster, asked, _first_line(error)) from error
                reason, was_lost = _first_line(error), True
            except ClusterNotFound as error:
                if not was_lost:
                    raise
                reason = error.reason  # Ray is about to start it again, or it was shut down
            notices.waits(awaited, reason)
            tell()
            time.sleep(min(_PAUSE_SECONDS, max(0.0, left)))
        raise ClusterNotReady(self.cluster, round(timeout * 1000), reason)

    def find(self) -> Any:
        """Return the controller's actor. ClusterNotFound where none has the name."""
        try:
            return ray.get_actor(CONTROLLER, namespace=self._namespace)
        except ValueError:
            raise ClusterNotFound(self.cluster, "start it with raylog.start on a node that has its data") from None

    def _ask_once(
        self, call: str, arguments: tuple[object, ...], timeout: float, meanwhile: Callable[[], object]
    ) -> Any:
        if self._actor is None:
            self._actor = self.find()
        try:
            return _answer(getattr(self._actor, call).remote(*arguments), timeout, meanwhile)
        except _GONE:
            self._actor = None
            raise
        except RayTaskError as error:
            raise plain_error(error) from None


def _answer(reference: ray.ObjectRef[Any], timeout: float, meanwhile: Callable[[], object]) -> Any:
    """Return what `ray.get` returns. That one warns in every asyncio actor, also on a thread that may well block."""
    answer = reference.future()
    if wait_in_slices(answer, timeout, meanwhile):
        return answer.result()
    raise GetTimeoutError(f"No answer came in {timeout:.1f} s.")


def plain_error(error: RayError) -> BaseException:
    """Return the error that the actor or task raised, without Ray's wrapping, where it was an error of raylog's."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, RaylogError) else error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
