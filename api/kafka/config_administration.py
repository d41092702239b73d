"""Settings of topics, brokers and the cluster: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

A resource is a topic, a broker, or with an empty name all brokers, which is the cluster. Each resource of a request is
answered by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from raylog.actors.cluster.admin_requests import (
    AdminRequest,
    DescribeClusterSettings,
    DescribeTopicSettings,
    EditClusterSettings,
    EditTopicSettings,
)
from raylog.actors.cluster.cluster_settings import describe_cluster_settings
from raylog.actors.cluster.descriptions import TopicSettingsDescription
from raylog.actors.cluster.setting_edits import SET, SettingEdit
from raylog.actors.cluster.state import ClusterState
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.fan_out import named_twice, some_at_a_time
from raylog.api.kafka.protocol.codecs import RequestHeader
from raylog.api.kafka.protocol.error_codes import ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.refusals import Refusals
from raylog.api.kafka.rules.config_entries import (
    ConfigEntry,
    broker_entries,
    cluster_edits,
    cluster_entries,
    topic_entries,
)
from raylog.api.kafka.rules.named_brokers import Gateways
from raylog.errors import InvalidRequest, RaylogError, UnknownTopic

_TOPIC: Final = 2
_BROKER: Final = 4
_SECONDS: Final = 20.0
_DESCRIBED: Final = "DescribeConfigsResponse"
_Topics: TypeAlias = dict[str, TopicSettingsDescription]
_CLUSTER_DEFAULTS: Final = describe_cluster_settings(ClusterState())


class ConfigAdministration:
    """Shows settings and changes them."""

    def __init__(
        self, administration: Administration, gateways: Callable[[], Gateways], refusals: Refusals
    ) -> None:
        self._administration = administration
        self._gateways = gateways
        self._refusals = refusals

    # --- DescribeConfigs ------------------------------------------------------------------------------------------

    async def describe(self, header: RequestHeader, request: Any) -> Any:
        """Serve DescribeConfigs. The settings of all topics are asked for at once."""
        topics = {each.resource_name for each in request.resources if each.resource_type == _TOPIC}
        found: _Topics | RaylogError
        try:
            found = await self.topics(sorted(topics)) if topics else {}
        except RaylogError as error:
            found = error
        results = [await self._described(header, request, each, found) for each in request.resources]
        return message_type(_DESCRIBED)(results=results)

    async def topics(self, names: Sequence[str]) -> _Topics:
        """Return the settings of those of these topics that exist."""
        return await self._administration.ask(DescribeTopicSettings(names), _SECONDS)

    async def _described(
        self, header: RequestHeader, request: Any, resource: Any, topics: _Topics | RaylogError
    ) -> Any:
        result = message_type(_DESCRIBED, "DescribeConfigsResult")
        place = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            entries = await self._entries(resource, topics)
        except RaylogError as error:
            self._tell(header, resource, error)
            return result(error_code=code_of(error), error_message=str(error), **place)
        wanted: Collection[str] | None = resource.configuration_keys
        shown = [
            _entry(each, synonyms=request.include_synonyms, text=request.include_documentation)
            for each in entries
            if wanted is None or each.name in wanted
        ]
        return result(error_code=ErrorCode.NONE, configs=shown, **place)

    async def _entries(
        self, resource: Any, topics: _Topics | RaylogError
    ) -> list[ConfigEntry]:
        name = resource.resource_name
        if resource.resource_type == _TOPIC:
            if isinstance(topics, RaylogError):
                raise topics
            if name not in topics:
                raise UnknownTopic(name)
            return topic_entries(dict(topics[name].settings), topics[name].replication_factor)
        _check_broker(resource)
        gateways = self._gateways()
        broker = next((each for each in gateways if str(each.broker_id) == name), None)
        if name and broker is None:
            raise InvalidRequest(f"There is no broker {name!r} at which Kafka clients are served.")
        settings = await self._administration.ask(DescribeClusterSettings(), _SECONDS)
        entries = cluster_entries(settings, _CLUSTER_DEFAULTS)
        return entries if broker is None else [*entries, *broker_entries(broker, len(gateways))]

    # --- changing -------------------------------------------------------------------------------------------------

    async def alter(self, header: RequestHeader, request: Any) -> Any:
        """Serve AlterConfigs: what a request does not name goes back to its default."""
        return await self._alter_all(header, request, "AlterConfigsResponse", replaces=True)

    async def alter_incrementally(self, header: RequestHeader, request: Any) -> Any:
        """Serve IncrementalAlterConfigs."""
        return await self._alter_all(header, request, "IncrementalAlterConfigsResponse", replaces=False)

    async def _alter_all(self, header: RequestHeader, request: Any, name: str, *, replaces: bool) -> Any:
        twice = named_twice((each.resource_type, each.resource_name) for each in request.resources)
        alter = partial(self._alter, header, name, twice, replaces, request.validate_only)
        return message_type(name)(responses=await some_at_a_time(alter, request.resources))

    async def _alter(
        self,
        header: RequestHeader,
        name: str,
        twice: Collection[tuple[int, str]],
        replaces: bool,
        validate_only: bool,
        resource: Any,
    ) -> Any:
        told = message_type(name, "AlterConfigsResourceResponse")
        code, text = ErrorCode.NONE, None
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise InvalidRequest(f"The request names {resource.resource_name!r} more than once.")
            await self._administration.ask(_edit(resource, replaces, validate_only), _SECONDS)
        except RaylogError as error:
            self._tell(header, resource, error)
            code, text = code_of(error), str(error)
        return told(code, text, resource.resource_type, resource.resource_name)

    def _tell(self, header: RequestHeader, resource: Any, error: RaylogError) -> None:
        what = "topic" if resource.resource_type == _TOPIC else "broker"
        self._refusals.tell(header, f"{what} {resource.resource_name!r}", error)


def _edit(resource: Any, replaces: bool, validate_only: bool) -> AdminRequest[None]:
    operations = [SET if replaces else each.config_operation for each in resource.configs]
    edits = [
        SettingEdit(each.name, operation, each.value)
        for each, operation in zip(resource.configs, operations, strict=True)
    ]
    if resource.resource_type == _TOPIC:
        return EditTopicSettings(resource.resource_name, edits, replaces, validate_only)
    _check_broker(resource)
    if resource.resource_name:
        raise InvalidRequest("Brokers have no settings of their own: change them for all, with an empty name.")
    return EditClusterSettings(cluster_edits(edits, replaces=replaces), validate_only)


def _check_broker(resource: Any) -> None:
    if resource.resource_type != _BROKER:
        raise InvalidRequest(f"Resources of type {resource.resource_type} have no settings here: only 2 and 4 have.")


def _entry(entry: ConfigEntry, *, synonyms: bool, text: bool) -> Any:
    synonym = message_type(_DESCRIBED, "DescribeConfigsSynonym")
    return message_type(_DESCRIBED, "DescribeConfigsResourceResult")(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[synonym(*each) for each in entry.synonyms] if synonyms else [],
        config_type=entry.type,
        documentation=entry.text if text else None,
    )
