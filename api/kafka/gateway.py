"""The gateway: requests of Kafka clients to the rooms that serve them, and their answers as frames.

    KafkaConnection ──header, frame──► ClientConnection.serve ──► producing, fetching, … ──► parts of the answer

A connection has a `ClientConnection` of its own, which keeps the fetches that are open for it, and the order of its
batches. All else belongs to the gateway. Nothing of a request is kept once it has been answered, but that order, fetch
sessions and what the connection may still fetch; a client that comes back to another gateway goes on there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.auto_creation import AutoCreation
from raylog.api.kafka.batch_turns import BatchTurns
from raylog.api.kafka.classic_membership import ClassicMembership
from raylog.api.kafka.cluster_layout import ClusterLayout
from raylog.api.kafka.column_conversion import ColumnConversion, LargeConversions
from raylog.api.kafka.committed_offsets import CommittedOffsets
from raylog.api.kafka.config_administration import ConfigAdministration
from raylog.api.kafka.deletions import Deletions
from raylog.api.kafka.fetching import Fetching
from raylog.api.kafka.group_descriptions import GroupDescriptions
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.metadata_answers import MetadataAnswers
from raylog.api.kafka.offset_answers import OffsetAnswers
from raylog.api.kafka.partition_polls import PartitionPolls
from raylog.api.kafka.producer_identities import ProducerIdentities
from raylog.api.kafka.producing import Producing
from raylog.api.kafka.protocol.api_versions import api_versions_answer, served
from raylog.api.kafka.protocol.codecs import API_VERSIONS_KEY, RequestHeader, answer_frame, decoder
from raylog.api.kafka.refusals import Refusals
from raylog.api.kafka.request_counts import RequestCounts
from raylog.api.kafka.rules.converted_batches import DEFAULT_ROOM, ConvertedBatches
from raylog.api.kafka.rules.fetch_sessions import FetchSessions
from raylog.api.kafka.rules.memory_budget import DEFAULT_MOST_BYTES, Account, MemoryBudget
from raylog.api.kafka.rules.named_brokers import NO_BROKER, Gateways
from raylog.api.kafka.sasl_session import AUTHENTICATE_KEY, HANDSHAKE_KEY, Sasl, SaslSession
from raylog.api.kafka.topic_administration import TopicAdministration
from raylog.api.kafka.unanswered_work import UnansweredWork
from raylog.errors import NotAuthenticated, UnsupportedRequestVersion
from raylog.storage.format.record_batch import Bytes

_FIND_SECONDS: Final = 30.0
_Room: TypeAlias = Callable[[int, Any, "ClientConnection"], Awaitable[Any]]
_RoomOfClient: TypeAlias = Callable[[RequestHeader, Any], Awaitable[Any]]  # one that has to know who asks


class Gateway:
    """Serves Kafka clients over a link to the cluster.

    `gateways` returns which gateways there are now, this one included. `new_session_id` gives a number that nobody can
    guess, for fetch sessions and members of groups. `broker_id`: the broker that it is beside. `room`: bytes of
    converted batches that are kept. `most_bytes`: of all requests and answers. `sasl`: clients prove who they are.
    """

    def __init__(
        self,
        link: ClusterLink,
        gateways: Callable[[], Gateways],
        new_session_id: Callable[[], int],
        *,
        broker_id: int = NO_BROKER,
        room: int = DEFAULT_ROOM,
        most_bytes: int = DEFAULT_MOST_BYTES,
        sasl: Sasl | None = None,
    ) -> None:
        self._link = link
        self._sasl = sasl
        self.budget = MemoryBudget(most_bytes)
        self._loop = asyncio.get_running_loop()
        self._topics = KnownTopics(link)
        administration, refusals = Administration(link), Refusals()
        self._auto_creation = AutoCreation(administration)
        self._metadata = MetadataAnswers(link, self._topics, gateways, self._auto_creation)
        self._offsets = OffsetAnswers(link, self._topics)
        self._committed = CommittedOffsets(link, self._topics)
        self._membership = ClassicMembership(link, new_session_id)
        self._groups = GroupDescriptions(link)
        self._deletions = Deletions(link, self._topics)
        self.conversions = LargeConversions(link.env.off_loop, self.budget)
        self._unanswered = UnansweredWork(self.budget)
        self._producing = Producing(link, self._topics, gateways, self._unanswered)
        self._identities = ProducerIdentities(link)
        self.requests = RequestCounts()
        self.sessions = FetchSessions(new_session_id)
        self.converted = ConvertedBatches(room)
        self._fetching = Fetching(link, self._topics, gateways, self.sessions, self.converted)
        topic_administration = TopicAdministration(link, administration, refusals)
        layout = ClusterLayout(link, administration, gateways, refusals, broker_id)
        configs = ConfigAdministration(administration, gateways, refusals)
        self._rooms_of_clients: dict[int, _RoomOfClient] = {
            11: lambda header, request: self._membership.join(header.api_version, request, header.client_id),
            19: topic_administration.create_topics,
            20: topic_administration.delete_topics,
            32: configs.describe,
            33: configs.alter,
            37: topic_administration.create_partitions,
            44: configs.alter_incrementally,
            29: layout.access_rules,
            35: layout.log_directories,
            46: layout.reassignments,
            75: layout.topic_partitions,
        }
        self._rooms: dict[int, _Room] = {
            0: lambda version, request, client: self._producing.serve(
                version, request, client.turns, client.conversion
            ),
            1: lambda version, request, client: self._fetching.serve(version, request, client.polls),
            2: lambda version, request, _: self._offsets.list_offsets(version, request),
            3: lambda version, request, _: self._metadata.metadata(version, request),
            8: lambda version, request, _: self._committed.commit(version, request),
            9: lambda version, request, _: self._committed.fetch(version, request),
            10: lambda version, request, _: self._metadata.find_coordinator(version, request),
            12: lambda _version, request, _: self._membership.heartbeat(request),
            13: lambda version, request, _: self._membership.leave(version, request),
            14: lambda _version, request, _: self._membership.sync(request),
            15: lambda version, request, _: self._groups.describe(version, request),
            16: lambda _version, request, _: self._groups.list_groups(request),
            21: lambda _version, request, _: self._deletions.records(request),
            22: lambda _version, request, _: self._identities.serve(request),
            23: lambda _version, request, _: self._offsets.ends_of_epochs(request),
            42: lambda _version, request, _: self._deletions.groups(request),
            47: lambda _version, request, _: self._deletions.offsets(request),
            60: lambda _version, request, _: self._metadata.describe_cluster(request),
        }
        if sasl is not None:
            self._rooms[HANDSHAKE_KEY] = lambda _version, request, client: client.handshake(request)
            self._rooms[AUTHENTICATE_KEY] = lambda _version, request, client: client.authenticate(request)

    async def start(self) -> None:
        """Learn of all topics. ClusterUnreachable, PeerNotAdmitted."""
        await self._link.follow_all(_FIND_SECONDS)

    def connection(self) -> ClientConnection:
        """Return what serves one more connection."""
        admission = None if self._sasl is None else SaslSession(self._sasl)
        return ClientConnection(self, self._link, self.budget.account(), admission)

    async def close(self) -> None:
        """Serve nobody any more. The link is its owner's to close."""
        self._topics.close()
        self._unanswered.close()
        await self._auto_creation.close()

    async def answer(
        self, header: RequestHeader, frame: Bytes, client: ClientConnection
    ) -> Sequence[Bytes] | None:
        """Return the parts of the frame that answers a request of this client; None if there is none.

        KafkaProtocolError: this is no request, or is not served. An error of raylog's: a request without an answer
        has failed. Both end the connection.
        """
        if header.api_key == API_VERSIONS_KEY:
            return self._versions(header)
        api = served(header.api_key, header.api_version)
        if client.admission is not None and not client.admission.may_ask(api.key):
            raise NotAuthenticated(f"it asked for {api.name}")
        room, room_of_clients = self._rooms.get(api.key), self._rooms_of_clients.get(api.key)
        if room is None and room_of_clients is None:
            raise UnsupportedRequestVersion(header.api_key, header.api_version)
        self.requests.request(api.name, frame)
        began = self._loop.time()
        request = decoder(f"{api.name}Request", header.api_version)(frame, header.end)
        if room_of_clients is not None:
            answer = await room_of_clients(header, request)
        elif room is not None:
            answer = await room(header.api_version, request, client)
        if answer is None:
            return None
        parts = answer_frame(api.name, header.api_version, answer, header.correlation_id)
        self.requests.answered(api.name, answer, parts, self._loop.time() - began)
        return parts

    def _versions(self, header: RequestHeader) -> Sequence[Bytes]:
        known = {API_VERSIONS_KEY, *self._rooms, *self._rooms_of_clients}
        version, answer = api_versions_answer(header.api_version, self._link.topics()[0], apis=known)
        return answer_frame("ApiVersions", version, answer, header.correlation_id)


class ClientConnection:
    """One connection of a client, as the gateway sees it."""

    def __init__(self, gateway: Gateway, link: ClusterLink, account: Account, admission: SaslSession | None) -> None:
        """`admission`: how it proves who it is; None: nobody asks."""
        self._gateway = gateway
        self.admission = admission
        self.account = account
        self.polls = PartitionPolls(link, account)
        self.conversion = ColumnConversion(gateway.conversions, account)
        self.turns = BatchTurns()

    @property
    def is_admitted(self) -> bool:
        """Whether it is served more than what leads to that."""
        return self.admission is None or self.admission.user is not None

    def handshake(self, request: Any) -> Awaitable[Any]:
        """Serve SaslHandshake, where it is to say who it is."""
        assert self.admission is not None
        return self.admission.handshake(request)

    def authenticate(self, request: Any) -> Awaitable[Any]:
        """Serve SaslAuthenticate, likewise."""
        assert self.admission is not None
        return self.admission.authenticate(request)

    async def serve(self, header: RequestHeader, frame: Bytes) -> Sequence[Bytes] | None:
        """Serve one request, as `KafkaConnection` wants it."""
        return await self._gateway.answer(header, frame, self)

    def close(self) -> None:
        """Give up what is open for it."""
        self.polls.close()
        self.account.close()
