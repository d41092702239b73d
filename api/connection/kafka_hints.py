"""Names that people who come from Kafka type out of habit, and the sentence that helps. Decides; touches nothing."""

from __future__ import annotations

from typing import Final

PAGE: Final = "docs/coming-from-kafka.md"

NO_ADDRESSES: Final = (
    "Brokers are found through Ray, so there are no addresses to give: leave it out, or name the cluster "
    f"(cluster='default') where there are several. See {PAGE}."
)
_ADMISSION: Final = f"Whoever is admitted to Ray is admitted here; see security in docs/operations.md, and {PAGE}."
_HINTS: Final = {
    "bootstrap_servers": NO_ADDRESSES,
    "brokers": NO_ADDRESSES,
    "metadata_broker_list": NO_ADDRESSES,
    "api_version": f"There are no versions of a protocol to choose. See {PAGE}.",
    "retries": f"A record is repeated until delivery_timeout_ms is over, and never written twice. See {PAGE}.",
}
_NAMES: Final = {
    "max_in_flight_requests_per_connection": "max_in_flight",
    "max_in_flight_requests": "max_in_flight",
    "partition_assignment_strategy": "group_remote_assignor",
    "message_max_bytes": "max_request_size",
}
_SECURITY: Final = ("security_", "sasl_", "ssl_")


def plain(name: str) -> str:
    """A name as raylog writes it: `kafka.bootstrap.servers` of Spark and `bootstrap.servers` of Java are one."""
    return name.lower().removeprefix("kafka.").replace(".", "_").replace("-", "_")


def hint_for(name: str) -> str:
    """Return what to do about an option that is Kafka's and has none here. Empty: it is not known."""
    wanted = plain(name)
    return _HINTS.get(wanted) or (_ADMISSION if wanted.startswith(_SECURITY) else "")


def name_here(name: str) -> str | None:
    """Return raylog's name of an option that Kafka's clients call so."""
    return _NAMES.get(plain(name))


def keywords_wanted(client: str) -> str:
    """Return advice for programs that give all options in one dictionary."""
    return (
        f"{client} takes its options as keywords, with kafka-python's names: {client}(client_id='mine', …), and not in "
        f"a dictionary. {NO_ADDRESSES}"
    )
