"""Python on the pages for people: it compiles, and names only what raylog has."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import raylog
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.rules.parallel_options import ParallelOptions
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.rules.producer_options import ProducerOptions
from tests.unit.docs.pages import PAGES, ROOT, blocks, name_of, prose, spans

_CLASSES: Final[dict[str, tuple[Any, ...]]] = {  # by the name of a class, or of a variable that holds one of it
    "Producer": (raylog.Producer,),
    "producer": (raylog.Producer, AsyncProducer),
    "AsyncProducer": (AsyncProducer,),
    "Consumer": (raylog.Consumer, raylog.ParallelConsumer),
    "consumer": (raylog.Consumer, AsyncConsumer, raylog.ParallelConsumer),
    "AsyncConsumer": (AsyncConsumer,),
    "ParallelConsumer": (raylog.ParallelConsumer,),
}
_OPTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "Producer": (ProducerOptions,),
    "AsyncProducer": (ProducerOptions,),
    "Consumer": (ConsumerOptions,),
    "AsyncConsumer": (ConsumerOptions,),
    "ParallelConsumer": (ConsumerOptions, ParallelOptions),
}
_CODE: Final = ("actors", "api", "bench", "examples", "groups", "raylog", "spark_bridge", "storage", "tests")
_NAMES_OF_OTHERS: Final = {
    "EndTxn", "GitHub", "InitProducerId", "JetStream", "OpenMessaging", "RAY_REDIS_CA_CERT",
    "RAY_external_storage_namespace", "RAY_memory_usage_threshold", "fallback_strategy", "key_encoding",
    "label_selector", "ray_remote_args_fn", "sync_file_range",
}  # fmt: skip
_HANDLE: Final = ("Cluster", "cluster")  # of a cluster, which no unit test can import: it needs Ray
_FOLDERS: Final = ("actors", "api", "groups", "storage")  # modules of the package, not names of `import raylog`


def _code(page: Path) -> Iterator[ast.Module]:
    for block in blocks(page, "python"):
        yield compile(block, name_of(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_of_python_name_what_is_there(page: Path) -> None:
    wrong = [problem for tree in _code(page) for node in ast.walk(tree) for problem in _problems(node)]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_methods_that_the_text_names_are_there(page: Path) -> None:
    named = [re.match(r"([A-Za-z]+)\.(?!yaml|Kafka)(\w+)\b(?!\.)", span) for span in spans(page)]
    wrong = [found[0] for found in named if found and not _has(found[1], found[2])]
    assert wrong == []


def _problems(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and not _has(node.value.id, node.attr):
        yield f"{node.value.id}.{node.attr}"
    if isinstance(node, ast.ImportFrom) and node.module == "raylog":
        yield from (f"from raylog import {name.name}" for name in node.names if not _has("raylog", name.name))
    if isinstance(node, ast.Call):
        yield from _unknown_keywords(node)


def _methods_of_handle() -> dict[str, ast.arguments]:
    files = [ast.parse(file.read_text()) for file in (ROOT / "api").rglob("*.py")]
    classes = {node.name: node for file in files for node in file.body if isinstance(node, ast.ClassDef)}
    found: dict[str, ast.arguments] = {}
    waiting = ["Cluster"]
    while waiting:
        kind = classes[waiting.pop()]
        waiting += [base.id for base in kind.bases if isinstance(base, ast.Name) and base.id in classes]
        found |= {node.name: node.args for node in kind.body if isinstance(node, ast.FunctionDef)}
    return found


_METHODS: Final = _methods_of_handle()


def _has(owner: str, name: str) -> bool:
    if owner == "raylog":
        return name in {*raylog.__all__, *_FOLDERS, "spark_bridge"} or hasattr(raylog.errors, name)
    if owner in _HANDLE:
        return name in _METHODS
    return owner not in _CLASSES or any(hasattr(each, name) for each in _CLASSES[owner])


def _unknown_keywords(call: ast.Call) -> Iterator[str]:
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return
    owner, name = function.value.id, function.attr
    if owner == "raylog" and name in _OPTIONS:
        options = {option.name for kind in _OPTIONS[name] for option in kind.describe()}
        allowed = options | set(inspect.signature(getattr(raylog, name)).parameters)
    elif owner in _HANDLE and name in _METHODS:
        of_method = _METHODS[name]
        allowed = {each.arg for each in (*of_method.args, *of_method.kwonlyargs)}
    elif owner in _CLASSES:
        methods = [getattr(each, name) for each in _CLASSES[owner] if hasattr(each, name)]
        signatures = [inspect.signature(method).parameters.values() for method in methods]
        allowed = {each.name for signature in signatures for each in signature}
        if any(each.kind is each.VAR_KEYWORD for signature in signatures for each in signature):
            return
    else:
        return
    yield from (f"{owner}.{name}({each.arg}=…)" for each in call.keywords if each.arg and each.arg not in allowed)


def _words_of_the_code() -> frozenset[str]:
    files = (file for folder in _CODE for file in (ROOT / folder).rglob("*.py"))
    return frozenset(word for file in files for word in re.findall(r"\w+", file.read_text()))


_WORDS: Final = _words_of_the_code()


@pytest.mark.parametrize("page", sorted(set(PAGES) - {ROOT / "docs" / "metrics.md"}), ids=name_of)
def test_names_of_the_code_are_those_of_today(page: Path) -> None:
    """Names with an underscore or a hump, such as `accept_waits` and `AcceptWaits`."""
    named = [found[1] for span in spans(page) if (found := re.fullmatch(r"@?([A-Za-z_][\w.]*)(?:\(.*\))?", span))]
    parts = {part for name in named for part in name.split(".") if re.search(r"[^_]_[^_]|[a-z][A-Z]", part)}
    humps = set(re.findall(r"(?<![`\w.])(?:[A-Z][a-z]+){2,}(?![`\w.])", prose(page)))
    saved = set(re.findall(r"^# (\w+)\.py$", "\n".join(blocks(page, "python")), re.MULTILINE))  # by readers of a guide
    assert sorted((parts | humps) - saved - _WORDS - _NAMES_OF_OTHERS) == []


@pytest.mark.parametrize(
    ("name", "kind"), [("PartitionLeader", PartitionLeader), ("TopicView", TopicView), ("ClusterLink", ClusterLink)]
)
def test_the_page_of_clients_has_the_public_names_of_a_link(name: str, kind: type) -> None:
    trees = _code(ROOT / "docs" / "clients.md")
    (shown,) = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    annotated = [node.target for node in shown.body if isinstance(node, ast.AnnAssign)]
    fields = [target.id for target in annotated if isinstance(target, ast.Name)]
    methods = {
        node.name: [each.arg for each in node.args.args]
        for node in shown.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if fields:
        assert fields == list(inspect.get_annotations(kind))
    if methods:
        real = {each: value for each, value in vars(kind).items() if inspect.isfunction(value) and each[0] != "_"}
        assert methods == {each: list(inspect.signature(value).parameters) for each, value in real.items()}
