"""The member's side: what it says, what it gives up, what counts of what it is told (rule 23)."""

from __future__ import annotations

from raylog.errors import (
    AssignorFailed,
    CoordinatorLoading,
    FencedInstance,
    FencedMember,
    NotCoordinator,
    RaylogError,
    RequestTimedOut,
    UnknownAssignor,
    UnknownMember,
)
from raylog.groups.member.member import Changes, GroupMember
from raylog.groups.records.messages import (
    JOINING,
    LEAVING,
    PAUSING,
    CommitOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    PartitionId,
    Profile,
    grouped,
)
from tests.unit.groups.small_group import topic_id
from tests.unit.longest_pauses import LongestPauses

_PROFILE = Profile("", "", "test", "", 10_000, 60_000, "", ("t",), "")
_INTERVAL_MS = 3_000
P0: PartitionId = (topic_id("t"), 0)
P1: PartitionId = (topic_id("t"), 1)


class Driver:
    """A member, the time, and ids in order."""

    def __init__(self, profile: Profile = _PROFILE, max_poll_ms: int = 60_000) -> None:
        self.now = 5_000
        self.ids = 0
        self.member = GroupMember("g", profile, max_poll_ms, self._draw_id, LongestPauses(), self.now)

    def _draw_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def says(self) -> GroupHeartbeat:
        request = self.member.next_heartbeat(self.now)
        assert request is not None
        return request

    def is_silent(self) -> bool:
        return self.member.next_heartbeat(self.now) is None

    def hears(self, request: GroupHeartbeat, epoch: int, *assignment: PartitionId) -> Changes:
        answer = GroupHeartbeatAnswer(epoch, _INTERVAL_MS, grouped(assignment) if assignment else None)
        return self.member.answered(request, answer, self.now)

    def is_told(self, epoch: int, *assignment: PartitionId) -> Changes:
        return self.hears(self.says(), epoch, *assignment)


def joined(*partitions: PartitionId, profile: Profile = _PROFILE, max_poll_ms: int = 60_000) -> Driver:
    driver = Driver(profile, max_poll_ms)
    assert driver.is_told(1, *partitions).assigned == set(partitions)
    return driver


def test_it_joins_says_what_it_owns_and_then_only_that() -> None:
    driver = Driver()
    first = driver.says()
    assert (first.epoch, first.owned, first.profile) == (JOINING, (), _PROFILE.fields())
    assert driver.is_silent()
    assert driver.hears(first, 1, P0) == Changes(assigned=frozenset({P0}))
    second = driver.says()  # at once, so that one is always waiting for news
    assert (second.epoch, second.owned, second.profile, second.max_wait_ms) == (1, grouped([P0]), None, _INTERVAL_MS)
    assert second.sequence > first.sequence
    assert driver.hears(second, 1) == Changes()
    assert driver.is_silent()
    assert driver.member.wake_at() == driver.now + _INTERVAL_MS
    driver.now += _INTERVAL_MS
    assert driver.says().owned == grouped([P0])


def test_an_answer_that_was_waited_for_is_followed_by_the_next_question() -> None:
    driver = joined(P0)
    request = driver.says()
    driver.now += _INTERVAL_MS
    driver.hears(request, 1)
    assert not driver.is_silent()


def test_what_it_gives_up_it_holds_until_it_is_revoked() -> None:
    driver = joined(P0, P1)
    changes = driver.is_told(1, P0)
    assert changes == Changes(revoke=frozenset({P1}))
    assert driver.member.reads == {P0}
    assert driver.is_silent()  # there is nothing to be heard before that is done
    driver.now += _INTERVAL_MS
    assert driver.says().owned == grouped([P0, P1])
    driver.member.revoked([P1], driver.now)
    assert driver.says().owned == grouped([P0])  # though another one is under way


def test_an_answer_to_a_heartbeat_that_was_given_up_grants_nothing() -> None:
    driver = joined(P0, P1)
    driver.is_told(1, P0)
    driver.now += _INTERVAL_MS
    late = driver.says()
    driver.member.revoked([P1], driver.now)
    driver.says()
    assert driver.hears(late, 2, P0, P1) == Changes()
    assert driver.member.failed(late, UnknownMember("g", "id1", 1, 0, ""), driver.now) == Changes()
    assert driver.member.holds == {P0}


def test_an_answer_that_a_stopped_process_finds_grants_nothing() -> None:
    driver = joined(P0)
    request = driver.says()
    driver.now += 10_000
    assert driver.hears(request, 2, P0, P1) == Changes()
    assert driver.says().owned == grouped([P0])


def test_a_member_that_is_no_more_loses_all_and_joins_under_another_id() -> None:
    driver = joined(P0, P1)
    request = driver.says()
    error = UnknownMember("g", "id1", 1, 700, "it was silent")
    assert driver.member.failed(request, error, driver.now) == Changes(lost=frozenset({P0, P1}), error=error)
    again = driver.says()
    assert (again.member, again.epoch, again.owned, again.profile) == ("id2", JOINING, (), _PROFILE.fields())


def test_a_fenced_member_joins_again_under_its_id() -> None:
    driver = joined(P0)
    changes = driver.member.failed(driver.says(), FencedMember("g", "id1", 1, 5, 0), driver.now)
    assert changes.lost == {P0}
    assert (driver.says().member, driver.member.epoch) == ("id1", JOINING)


def test_a_lost_coordinator_takes_nothing_away() -> None:
    driver = joined(P0)
    waits = []
    for error in (NotCoordinator("g", "over"), CoordinatorLoading("g", 5), RequestTimedOut("c", 1_000)) * 3:
        assert driver.member.failed(driver.says(), error, driver.now).lost == set()
        assert driver.is_silent()
        waits.append((driver.member.wake_at() or 0) - driver.now)
        driver.now += waits[-1]
    assert waits[:4] == [50, 100, 200, 400]
    assert waits[-1] == 1_000
    assert driver.member.reads == {P0}
    driver.is_told(1)
    driver.now += _INTERVAL_MS
    driver.member.failed(driver.says(), NotCoordinator("g", "over"), driver.now)
    assert driver.member.wake_at() == driver.now + 50


def test_a_failed_assignor_is_told_and_the_member_stays() -> None:
    driver = joined()
    error = AssignorFailed("theirs", "it raised")
    assert driver.member.failed(driver.says(), error, driver.now) == Changes(error=error)
    assert driver.member.is_member


def test_what_cannot_be_stops_it() -> None:
    errors: list[RaylogError] = [UnknownAssignor("x", "no"), FencedInstance("g", "one", "id1", 1, 5)]
    for error in errors:
        driver = joined(P0)
        changes = driver.member.failed(driver.says(), error, driver.now)
        assert changes == Changes(lost=frozenset({P0}), error=error)
        assert driver.member.stopped_by is error
        assert driver.member.is_over
        assert driver.is_silent()
        assert driver.member.wake_at() is None


def test_a_subscription_is_told_until_it_was_heard() -> None:
    driver = joined(P0)
    other = _PROFILE._replace(topics=("u",))
    driver.member.change_profile(other, driver.now)
    request = driver.says()
    assert request.profile == other.fields()
    driver.member.failed(request, RequestTimedOut("c", 5), driver.now)
    driver.now += 1_000
    assert driver.says().profile == other.fields()


def test_one_that_changes_while_it_is_told_is_told_again() -> None:
    driver = joined(P0)
    driver.member.change_profile(_PROFILE._replace(topics=("u",)), driver.now)
    request = driver.says()
    driver.member.change_profile(_PROFILE._replace(topics=("v",)), driver.now)
    assert driver.says().profile == _PROFILE._replace(topics=("v",)).fields()
    assert driver.hears(request, 1) == Changes()


def test_nobody_polling_it_leaves_and_is_back_with_the_next_poll() -> None:
    driver = joined(P0, max_poll_ms=20_000)
    request = driver.says()
    driver.now += 19_999
    assert driver.member.tick(driver.now) == Changes()
    assert driver.member.wake_at() == driver.now + 1
    driver.now += 1
    changes = driver.member.tick(driver.now)
    assert changes.lost == frozenset({P0})
    assert isinstance(changes.error, UnknownMember)
    why = "nobody polled for 20000 ms (max_poll_interval_ms 20000), so it left"
    assert changes.error.args == ("g", driver.member.member_id, 1, 0, why)
    assert driver.member.absence(driver.now + 7).elapsed_ms == 7
    goodbye = driver.says()
    assert (goodbye.epoch, goodbye.member) == (LEAVING, "id1")
    assert driver.hears(request, 1, P0, P1) == Changes()
    driver.hears(goodbye, LEAVING)
    assert driver.is_silent()
    assert driver.member.wake_at() is None
    driver.member.polled(driver.now)
    again = driver.says()
    assert (again.epoch, again.member) == (JOINING, "id2")


def test_a_poll_before_the_goodbye_is_said_takes_it_back() -> None:
    driver = joined(P0, max_poll_ms=20_000)
    driver.now += 20_000
    driver.member.tick(driver.now)
    driver.member.polled(driver.now)
    again = driver.says()
    assert (again.epoch, again.member) == (JOINING, "id1")


def test_leaving_for_good_or_for_a_while() -> None:
    static = _PROFILE._replace(instance_id="one")
    for profile, for_good, epoch in ((_PROFILE, False, LEAVING), (static, False, PAUSING), (static, True, LEAVING)):
        driver = joined(P0, profile=profile)
        driver.says()
        assert driver.member.leave(driver.now, for_good=for_good) == {P0}
        goodbye = driver.says()
        assert (goodbye.epoch, goodbye.owned) == (epoch, ())
        assert driver.member.state == "leaving"
        driver.member.failed(goodbye, RequestTimedOut("c", 5), driver.now)
        assert driver.member.is_over
        assert driver.is_silent()


def test_leaving_before_anything_was_said() -> None:
    driver = Driver()
    assert driver.member.leave(driver.now) == set()
    assert driver.member.is_over
    assert driver.is_silent()


def test_a_refused_commit_is_looked_into_at_once() -> None:
    driver = joined(P0)
    driver.says()
    assert driver.is_silent()
    assert driver.member.commit([(*P0, 5, -1, "")]) == CommitOffsets("g", "id1", 1, ((*P0, 5, -1, ""),))
    driver.member.doubted(driver.now)
    assert not driver.is_silent()
