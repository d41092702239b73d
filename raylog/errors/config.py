"""A setting that is unknown, or has a value it cannot have."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class ConfigError(RaylogError, ValueError):
    """A setting cannot be used."""

    fatal = True


class UnknownConfig(ConfigError):
    """A setting of this name does not exist."""

    name: str
    suggestion: str | None = None
    hint: str = ""

    def describe(self) -> str:
        meant = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        hint = f" {self.hint.rstrip('.')}." if self.hint else ""
        return f"There is no setting {self.name!r}.{meant}{hint}"


class InvalidConfig(ConfigError):
    """A setting has a value it cannot have."""

    name: str
    value: object
    expected: str

    def describe(self) -> str:
        return f"Setting {self.name!r} cannot be {self.value!r}: expected {self.expected}."
