"""Groups, their coordinators and their members from a seed, under faults for a while and then without.

    run_group_seed(17)          # GroupBroken where something happened that may not
    make simulate-groups        # many of them

Coordinators of one offsets partition are killed, paused, and replaced with the old one still there; members are killed,
paused past their session, busy past their poll interval, come and go; messages are lost, late, or come twice; topics
are created, grow and go. In the end, with the faults over, every group has to settle within `_SETTLE_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final, TypeVar

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import AssignorFailed, RaylogError, RequestTimedOut
from raylog.groups.assignors import calling
from raylog.groups.assignors.assignment import Subscriber, TopicShape
from raylog.groups.assignors.calling import AssignorCall, AssignorsBesideLoop, Given
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.records import topic_patterns
from raylog.groups.records.messages import Profile
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.pattern_topics import PatternTopics, match_patterns
from raylog.groups.rules.rebalance import TargetBasis, TargetPlan, subscribed
from tests.simulator.checks.group_checks import GroupBroken, GroupChecker
from tests.simulator.checks.step_checks import look_at_groups
from tests.simulator.cluster.group_log import FakeOffsetsLog, OffsetsPartition, TopicBoard, TopicsView
from tests.simulator.cluster.group_process import Coordinator, MemberProcess, Observer
from tests.simulator.mutations.mutations import Patches
from tests.simulator.world.scheduler import MICROSECONDS, Scheduler
from tests.simulator.world.virtual_loop import ErrorContext, VirtualLoop

_FAULTY_SECONDS: Final = 40
_SETTLE_SECONDS: Final = 25
_MAX_EVENTS: Final = 3_000_000
_SESSION_MS: Final = 5_000
_SETTINGS: Final = GroupSettings(
    heartbeat_interval_ms=1_000, confirm_ms=1_000, max_unconfirmed_ms=4_000, commit_timeout_ms=3_000,
    missing_topic_ms=10_000_000, expiry_check_ms=7_000, max_batch_bytes=4_096, assignor_retry_ms=3_000,
)  # fmt: skip
_T = TypeVar("_T")


class LoopWatch:
    """Notices an assignor, what it is told, or the matching of a pattern, on a coordinator's loop (rule 34)."""

    def __init__(self) -> None:
        self._beside = 0
        self.broken = ""

    @contextmanager
    def beside_the_loop(self) -> Iterator[None]:
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1

    @contextmanager
    def over_all(self) -> Iterator[None]:
        patches = Patches()
        assign, matching, plan = calling.assign, topic_patterns.matching, TargetBasis.plan

        def watched_assign(name: str, members: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> Given:
            self._look("the assignor")
            return assign(name, members, topics)

        def watched_matching(pattern: str, topics: Sequence[str]) -> frozenset[str]:
            self._look("a pattern")
            return matching(pattern, topics)

        def watched_plan(self: TargetBasis) -> TargetPlan:
            watch._look("what an assignor is told")
            return plan(self)

        watch = self
        patches.attribute(TargetBasis, "plan", watched_plan)
        patches.function(assign, watched_assign)
        patches.function(matching, watched_matching)
        try:
            yield
        finally:
            patches.undo()

    def _look(self, what: str) -> None:
        if not self._beside:
            self.broken = f"{what} ran on the loop of a coordinator"


class FailingAssignors(AssignorsBesideLoop):
    """Some calls fail, as one that takes too long does."""

    def __init__(self, process: CoordinatorProcess, world: GroupWorld) -> None:
        super().__init__(process.off_loop)
        self._world = world

    def run(self, call: AssignorCall) -> Awaitable[Given]:
        return self._fail(call) if self._world.draw() < 0.05 else super().run(call)

    async def _fail(self, call: AssignorCall) -> Given:
        await asyncio.sleep(1.0)
        raise AssignorFailed(call.name, "it was taken too long")


class CoordinatorProcess(Coordinator):
    def __init__(self, world: GroupWorld, epoch: int) -> None:
        self.epoch = epoch
        self.loop = world.new_loop(f"coordinator-{epoch}")
        self._log = FakeOffsetsLog(world.partition, world.scheduler, self.loop, world.random)
        self._topics = TopicsView(world.board, world.scheduler, self.loop, world.random)
        self._wall_ms = lambda: 1_700_000_000_000 + world.scheduler.now // 1_000
        self._world = world
        self.core: GroupCoordinator | None = None
        self._then: object = None
        self.tasks = BackgroundTasks(self._failed)
        self.loop.deliver(lambda: self.tasks.start(self._run()))

    def _failed(self, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": f"{self.loop.name} failed", "exception": error})

    async def _run(self) -> None:
        self.core = GroupCoordinator(
            self._log, self._topics, self.epoch, self._wall_ms, self.off_loop, self._world.random, _SETTINGS,
            FailingAssignors(self, self._world),
        )  # fmt: skip
        self.loop.after_call = self._look
        await self.core.run()

    def _look(self) -> None:
        if self.core is not None:
            self._then = look_at_groups(self.loop.name, self.core, self._then)

    def off_loop(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Mostly quick; but much may have changed by the time it is done."""
        future: asyncio.Future[_T] = self.loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(result)

        with self._world.watch.beside_the_loop():
            result = work()
        delay = self._world.random.choice((100, 1_000, 20_000, 1_500_000))
        self._world.scheduler.after(delay, self.loop.deliver, done)
        return future

    @property
    def is_serving(self) -> bool:
        return self.core is not None and self.core.is_serving and not self.loop.is_dead


class GroupWorld:
    """The world of a group, with the network between members and coordinators."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.watch = LoopWatch()
        self.scheduler = Scheduler(Random(seed + 1))
        self.checker = GroupChecker()
        self.partition = OffsetsPartition(self.checker.batch)
        self.board = TopicBoard()
        self.coordinators: list[CoordinatorProcess] = []
        self.processes: list[MemberProcess] = []
        self.problems: list[BaseException] = []
        self.is_calm = False
        self._names = 0
        self._loops: list[VirtualLoop] = []
        self._losses = self.random.choice((0.0, 0.01, 0.1))
        self._repeats = self.random.choice((0.0, 0.05))
        self._slow = self.random.choice((0.0, 0.02, 0.2))
        for name in ("a", "b", "logs-1"):
            self.board.put(name, self.random.randint(1, 8))
        self.replace_coordinator()
        self.observer = Observer(self.new_loop("observer"), self, self.checker, Random(seed + 2))
        for group in ("g1", "g2"):
            for _ in range(self.random.randint(1, 4)):
                self.start_member(group)

    def new_loop(self, name: str) -> VirtualLoop:
        loop = VirtualLoop(self.scheduler, name, self._report, base=self.random.uniform(0, 1_000))  # type: ignore[abstract]
        self._loops.append(loop)
        return loop

    def _report(self, loop: VirtualLoop, context: ErrorContext) -> None:
        error = context.get("exception")
        self.problems.append(error if error is not None else GroupBroken(f"{loop.name}: {context['message']}"))
        self.scheduler.is_stopping = True

    # --- the network ----------------------------------------------------------------------------------------------

    def find_coordinator(self) -> CoordinatorProcess | None:
        """Mostly the newest. Some hear late, and go to one that was replaced."""
        alive = [each for each in self.coordinators if not each.loop.is_dead]
        if not alive:
            return None
        return alive[-1] if self.is_calm or self.random.random() < 0.8 else self.random.choice(alive)

    def any_coordinator(self) -> CoordinatorProcess | None:
        alive = [each for each in self.coordinators if not each.loop.is_dead]
        return self.random.choice(alive) if alive else None

    async def ask(self, to: Any, request: Message, timeout: float) -> Message:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer: asyncio.Future[Message] = loop.create_future()
        if to is not None:
            for _ in range(1 + (self.draw() < self._repeats)):
                if self.draw() >= self._losses:
                    self.scheduler.after(self._delay(), to.loop.deliver, self._receive, to, request, loop, answer)
        try:
            return await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError:
            raise RequestTimedOut("the coordinator", int(timeout * 1000)) from None

    def draw(self) -> float:
        return 1.0 if self.is_calm else self.random.random()

    def _delay(self) -> int:
        """Microseconds; a late message may arrive after many that were sent later."""
        if self.draw() < self._slow:
            return self.random.randrange(1_000, 4_000_000)
        return self.random.randrange(100, 2_000)

    def _receive(
        self, to: CoordinatorProcess, request: Message, asker: VirtualLoop, answer: asyncio.Future[Message]
    ) -> None:
        if to.core is not None:
            to.tasks.start(self._answer(to.core, request, asker, answer))

    async def _answer(
        self, core: GroupCoordinator, request: Message, asker: VirtualLoop, answer: asyncio.Future[Message]
    ) -> None:
        outcome: Message | RaylogError
        try:
            outcome = _over_the_wire(await core.handle(_over_the_wire(request)))
        except RaylogError as error:
            outcome = remote_failed("x", failure_of(error)).error or error
        if self.draw() >= self._losses:
            self.scheduler.after(self._delay(), asker.deliver, _set, answer, outcome)

    # --- what happens ---------------------------------------------------------------------------------------------

    def replace_coordinator(self, kill: bool = True) -> None:
        if self.coordinators and kill:
            self.coordinators[-1].loop.kill()
        self.coordinators.append(CoordinatorProcess(self, len(self.coordinators)))

    def start_member(self, group: str, profile: Profile | None = None) -> None:
        self._names += 1
        name = f"m{self._names}"
        member = MemberProcess(
            name, group, profile or self._profile(), self.random.choice((2_500, 300_000)),
            self.new_loop(name), self, self.checker, Random(self.random.random()),
        )  # fmt: skip
        self.processes.append(member)
        member.start()

    def _profile(self, instance_id: str | None = None) -> Profile:
        if instance_id is None:
            instance_id = self.random.choice(("", "", f"static-{self._names}"))
        topics, pattern = self.random.choice(((("a", "b"), ""), (("a",), ""), ((), "logs-.*"), (("b",), "(a|logs).*")))
        assignor = self.random.choice(("", "range", "roundrobin", "sticky"))
        rebalance_timeout_ms = self.random.choice((1_000, 60_000))
        return Profile(instance_id, "", "sim", "here", _SESSION_MS, rebalance_timeout_ms, assignor, topics, pattern)

    @property
    def alive(self) -> list[MemberProcess]:
        return [each for each in self.processes if not each.loop.is_dead and not each.member.is_over]

    def kill_member(self, process: MemberProcess) -> None:
        process.loop.kill()
        self.checker.died(process.group, process.name)

    def fault(self) -> None:
        """One of them, and the next in a while."""
        if self.is_calm:
            return
        self.random.choice(_FAULTS)(self)
        self.scheduler.after(self.random.randrange(100_000, 3_000_000), self.fault)

    def pause(self, loop: VirtualLoop) -> None:
        loop.pause()
        seconds = self.random.choice((0.5, 3.0, 8.0, 12.0))
        self.scheduler.after(int(seconds * MICROSECONDS), loop.resume)

    # --- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self.scheduler.after(MICROSECONDS, self.fault)
            self._run_until(_FAULTY_SECONDS)
            self._calm_down()
            if not self._run_until(_FAULTY_SECONDS + _SETTLE_SECONDS, settles=True):
                raise GroupBroken(f"not settled {_SETTLE_SECONDS} s after the last fault: {self._unsettled()}")
        finally:
            self._dispose()

    def _calm_down(self) -> None:
        self.is_calm = True
        self.partition.stalled_until = 0
        for loop in self._loops:
            loop.resume()
        newest = self.coordinators[-1]
        if newest.loop.is_dead or newest.core is None or not newest.is_serving:
            self.replace_coordinator()

    def _run_until(self, seconds: int, settles: bool = False) -> bool:
        enough = (lambda: self.scheduler.events % 64 == 0 and not self._unsettled()) if settles else None
        done = self.scheduler.run(seconds * MICROSECONDS, enough, _MAX_EVENTS)
        if self.problems:
            raise self.problems[0]
        return done

    def _unsettled(self) -> str:
        """Every process that lives is a member, and reads with its group each partition once. Empty: it is so."""
        for group in ("g1", "g2"):
            members = [each for each in self.alive if each.group == group]
            wanted = set()
            for each in members:
                if not each.member.is_member or each.member.revoking:
                    return f"{each.name} of {group} is {each.member.state}, revoking {len(each.member.revoking)}"
                matched = self._patterns_of(each.profile).means(each.profile.pattern)
                for name in subscribed(each.profile.topics, matched, self.board.topics):
                    topic = self.board.topics[name]
                    wanted |= {(topic.topic_id, number) for number in range(topic.partitions)}
            read = sorted(partition for each in members for partition in each.member.reads)
            if read != sorted(wanted):
                return f"{group} reads {len(read)} of {len(wanted)} partitions"
        return ""

    def _patterns_of(self, profile: Profile) -> PatternTopics:
        patterns = PatternTopics()
        while (work := patterns.due({profile.pattern} - {""}, self.board.topics)) is not None:
            with self.watch.beside_the_loop():
                patterns.learn(work, match_patterns(work))
        return patterns

    def _dispose(self) -> None:
        for loop in self._loops:
            loop.kill()
            loop.dispose()
        self.scheduler.clear()


def _set(answer: asyncio.Future[Message], outcome: Message | RaylogError) -> None:
    if answer.done():
        return
    if isinstance(outcome, RaylogError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _over_the_wire(message: Message) -> Message:
    return unpack(*pack(message))


# --- faults -------------------------------------------------------------------------------------------------------


def _kill_coordinator(world: GroupWorld) -> None:
    world.replace_coordinator()


def _second_coordinator(world: GroupWorld) -> None:
    """The old one was only thought to be dead."""
    world.replace_coordinator(kill=False)


def _pause_coordinator(world: GroupWorld) -> None:
    world.pause(world.coordinators[-1].loop)


def _pause_and_replace(world: GroupWorld) -> None:
    world.pause(world.coordinators[-1].loop)
    world.replace_coordinator(kill=False)


def _stall_log(world: GroupWorld) -> None:
    world.partition.stalled_until = world.scheduler.now + world.random.randrange(100_000, 6_000_000)


def _pause_member(world: GroupWorld) -> None:
    if world.alive:
        world.pause(world.random.choice(world.alive).loop)


def _busy_member(world: GroupWorld) -> None:
    if world.alive:
        world.random.choice(world.alive).stop_polling(world.random.uniform(1, 6))


def _kill_member(world: GroupWorld) -> None:
    if world.alive:
        world.kill_member(world.random.choice(world.alive))


def _restart_member(world: GroupWorld) -> None:
    """A static one under its instance id, while the former process may live on."""
    if world.alive:
        process = world.random.choice(world.alive)
        if world.random.random() < 0.5:
            world.kill_member(process)
        world.start_member(process.group, process.profile)


def _leave(world: GroupWorld) -> None:
    if len(world.alive) > 1:
        process = world.random.choice(world.alive)
        process.loop.deliver(process.leave)


def _join(world: GroupWorld) -> None:
    if len(world.alive) < 9:
        world.start_member(world.random.choice(("g1", "g2")))


def _subscribe(world: GroupWorld) -> None:
    if world.alive:
        process = world.random.choice(world.alive)
        profile = world._profile(process.profile.instance_id)
        process.loop.deliver(process.subscribe, profile)


def _grow_topic(world: GroupWorld) -> None:
    name = world.random.choice(("a", "b", "logs-1", "logs-2"))
    known = world.board.topics.get(name)
    world.board.put(name, (known.partitions if known else 0) + world.random.randint(1, 2))


def _delete_topic(world: GroupWorld) -> None:
    if "logs-2" in world.board.topics:
        world.board.delete("logs-2")


_FAULTS: Final = (
    _kill_coordinator, _second_coordinator, _pause_coordinator, _pause_and_replace, _stall_log,
    _pause_member, _pause_member, _busy_member, _kill_member, _restart_member, _leave, _join, _join, _subscribe,
    _grow_topic, _delete_topic,
)  # fmt: skip


def run_group_seed(seed: int) -> GroupWorld:
    world = GroupWorld(seed)
    with world.watch.over_all():
        world.run()
    if world.watch.broken:
        raise GroupBroken(world.watch.broken)
    return world


def failure_of_seed(seed: int) -> str:
    """Return what went wrong, in one line; empty: nothing."""
    try:
        run_group_seed(seed)
    except Exception as error:  # noqa: BLE001 (whatever a seed brings to light)
        return f"{type(error).__name__}: {error}"
    return ""
