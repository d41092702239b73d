"""Schemas by their number, asked of a registry that speaks Confluent's protocol.

    value   0 | number of its schema, 4 bytes, big-endian | (Protobuf: which of its messages) | the encoded value
    asked   GET /schemas/ids/{number}                         its text, and which other schemas it refers to
            GET /subjects/{subject}/versions/{version}        one of those

What must stay true: what an address holds of user and password is sent to the registry, and stands in no error.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raylog.errors import InvalidConfig

_MAGIC: Final = 0
_HEAD_BYTES: Final = 5
_SECONDS: Final = 10.0
_TRIES: Final = 4
_PAUSE_SECONDS: Final = 0.5  # doubled each time
_MOST_BYTES: Final = 16 << 20
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaUnknown(Exception):
    """The registry has not told the schema; the reason."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema's text. `references`: the name that it uses for each other schema, and that schema."""

    text: str
    kind: str
    references: Mapping[str, RegisteredSchema]


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry at an address, http or https, with user and password if it wants some."""

    address: str = field(repr=False)
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        try:
            url = urllib.parse.urlsplit(self.address)
            is_fit = url.scheme in ("http", "https") and bool(url.hostname) and not url.query and url.port != 0
        except (AttributeError, TypeError, ValueError):
            is_fit = False
        if not is_fit:
            raise InvalidConfig("registry", "***", "the address of a schema registry, as http://host:8081")

    @property
    def shown(self) -> str:
        """Return the address without user and password."""
        url = urllib.parse.urlsplit(self.address)
        return urllib.parse.urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2]))

    def schema(self, number: int, form: str = "") -> RegisteredSchema:
        """Return a schema with all that it refers to; `form`: how its text is wanted. SchemaUnknown."""
        return self._with_references(self._get(f"/schemas/ids/{number}", form), form, ())

    def _with_references(
        self, told: Mapping[str, Any], form: str, above: tuple[tuple[str, int], ...]
    ) -> RegisteredSchema:
        found = {}
        try:
            for each in told.get("references") or ():
                subject, version = str(each["subject"]), int(each["version"])
                if (subject, version) in above:
                    raise SchemaUnknown(f"the schema {subject!r} of {self.shown} refers to itself")
                path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
                found[str(each["name"])] = self._with_references(
                    self._get(path, form), form, (*above, (subject, version))
                )
            return RegisteredSchema(str(told["schema"]), str(told.get("schemaType") or "AVRO"), found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SchemaUnknown(f"{self.shown} answers with something else than a schema: {error!r}") from error

    def _get(self, path: str, form: str) -> Mapping[str, Any]:
        reason = ""
        for attempt in range(_TRIES):
            if attempt:
                self.pause(_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                return self._answer(path, form)
            except urllib.error.HTTPError as error:
                reason = f"HTTP {error.code}"
                if error.code < 500 and error.code != http.HTTPStatus.TOO_MANY_REQUESTS:
                    break
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or repr(error)
            except ValueError as error:
                reason = f"no JSON object: {error}"
        raise SchemaUnknown(f"{self.shown}{path} cannot be had: {reason.rstrip('.')}")

    def _answer(self, path: str, form: str) -> Mapping[str, Any]:
        url = urllib.parse.urlsplit(self.shown.rstrip("/") + path)
        query = urllib.parse.urlencode({"format": form}) if form else ""
        request = urllib.request.Request(urllib.parse.urlunsplit(url._replace(query=query)), headers=self._headers())
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            found = json.loads(answer.read(_MOST_BYTES))
        if not isinstance(found, dict):
            raise ValueError("it is another value")
        return found

    def _headers(self) -> dict[str, str]:
        url = urllib.parse.urlsplit(self.address)
        if url.username is None:
            return {"Accept": _ACCEPT}
        told = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
        return {"Accept": _ACCEPT, "Authorization": "Basic " + base64.b64encode(told.encode()).decode()}


def schema_number(value: bytes) -> tuple[int, memoryview]:
    """Return the number of a value's schema, and what follows. ValueError."""
    if len(value) < _HEAD_BYTES or value[0] != _MAGIC:
        raise ValueError("it does not begin with 0 and the number of a schema")
    return int.from_bytes(value[1:_HEAD_BYTES], "big"), memoryview(value)[_HEAD_BYTES:]
