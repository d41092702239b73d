"""The class that every error extends: fields declared once, pickled whole, told to a person in plain words.

A subclass declares its fields as annotations, in the order of its constructor:

    class DirectoryLocked(DirectoryError):
        path: str
        holder: str = "unknown"

What stays true here:
- Everything the constructor takes becomes `args`, defaults included. `pickle` and `remote_errors.py` call the
  constructor with exactly these to build the error again in another process. So a new field goes to the end, and has a
  default.
- A class without fields takes one text, which `describe` returns.
- A class with an `__init__` of its own passes to the base what it takes, and stores its attributes itself.
- Every class of this package says that it lives in `raylog.errors`. Pickles name that module, whatever the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        """Mark a class for type checkers only; `typing` has this from Python 3.11 on."""
        return lambda cls: cls


_PACKAGE: Final = "raylog.errors"


# A type checker derives each subclass's constructor from its fields; without fields it is that of Exception.
@dataclass_transform(eq_default=False)
class RaylogError(Exception):
    """Base of everything raylog raises on purpose."""

    __module__ = _PACKAGE
    __match_args__: ClassVar[tuple[str, ...]] = ()

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith(_PACKAGE):
            cls.__module__ = _PACKAGE
        own = cls.__dict__
        if "__init__" in own:
            _set_fields(cls, ())
        elif "__annotations__" in own:
            fields = [name for name, kind in own["__annotations__"].items() if not kind.startswith("ClassVar")]
            _set_fields(cls, (*cls.__match_args__, *fields))

    if not TYPE_CHECKING:

        def __init__(self, *args: object, **named: object) -> None:
            fields = self.__match_args__
            if named or (fields and len(args) != len(fields)):
                args = _complete(type(self), args, named)
            super().__init__(*args)
            self.__dict__.update(zip(fields, args, strict=False))

    def describe(self) -> str:
        """Say what happened, without the advice."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.describe()} {self.advice}".rstrip()


def _set_fields(cls: type[RaylogError], names: tuple[str, ...]) -> None:
    setattr(cls, "__match_args__", names)  # noqa: B010 (mypy takes no plain assignment of this name)


def _complete(cls: type[RaylogError], args: tuple[object, ...], named: Mapping[str, object]) -> tuple[object, ...]:
    """Return the value of each field in order: as given by place or by name, else its default."""
    fields = cls.__match_args__
    given: dict[str, Any] = dict(zip(fields, args, strict=False))
    twice = given.keys() & named.keys()
    given.update(named)
    missing = [name for name in fields if name not in given and not hasattr(cls, name)]
    if twice or missing or len(args) > len(fields) or len(given) > len(fields):
        raise TypeError(f"{cls.__name__} takes {', '.join(fields) or 'one text'}; given were {args} and {dict(named)}")
    return tuple(given[name] if name in given else getattr(cls, name) for name in fields)
