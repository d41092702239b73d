"""Java programs by the names of their classes, each a process that has so many seconds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

SHORT: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""A JVM that starts fast and stays small, for programs that do a single thing."""

LASTING: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-Djava.awt.headless=true")
"""A JVM for what is measured, with the options of Kafka's own scripts."""

_QUIET: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0


class JavaFailed(Exception):
    """A program ended with an error, or did not end; the text is what it said."""


class JavaPrograms:
    """Programs of a folder of jars. `folder`: where they run, and leave what they say."""

    def __init__(self, jars: Path, bootstrap: str, folder: Path, jvm: Sequence[str] = SHORT) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self._jvm = jvm
        self._classpath = f"{jars}/*"
        self._running: list[Running] = []

    def run(self, main: str, *arguments: str, seconds: float = _SECONDS, given: str = "") -> str:
        """Return what it said on standard output. JavaFailed."""
        command = self._command(main, arguments)
        try:
            done = subprocess.run(
                command, cwd=self.folder, input=given, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise JavaFailed(f"{main} does not end within {seconds:g} s:\n{late.stdout!r}\n{late.stderr!r}") from late
        if done.returncode:
            raise JavaFailed(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def tool(self, name: str, *arguments: str, seconds: float = _SECONDS) -> str:
        """Run one of Kafka's tools, such as `TopicCommand`, with the address of the brokers."""
        main = f"org.apache.kafka.tools.{name}"
        return self.run(main, "--bootstrap-server", self.bootstrap, *arguments, seconds=seconds)

    def start(self, main: str, *arguments: str) -> Running:
        """Start one that is stopped later."""
        said = self.folder / f"{main.rpartition('.')[2]}-{len(self._running)}.out"
        running = Running(main, self._command(main, arguments), self.folder, said)
        self._running.append(running)
        return running

    def close(self) -> None:
        """Kill what still runs."""
        for each in self._running:
            each.kill()

    def file(self, name: str, text: str) -> str:
        """Return the path of a file with this text."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def properties(self, name: str, settings: dict[str, str]) -> str:
        """Return the path of a file with these settings."""
        return self.file(name, "".join(f"{key}={value}\n" for key, value in settings.items()))

    def _command(self, main: str, arguments: Sequence[str]) -> list[str]:
        return ["java", *self._jvm, *_QUIET, "-cp", self._classpath, main, *arguments]


class Running:
    """A program that was started."""

    def __init__(self, main: str, command: list[str], folder: Path, said: Path) -> None:
        self._main = main
        self._said = said
        with said.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of this name, of those that Kafka's verifiable clients tell as lines of JSON."""
        complete = self.said().rpartition("\n")[0].splitlines()
        told = [json.loads(line) for line in complete if line.startswith('{"')]
        return [each for each in told if each["name"] == name]

    def check(self) -> None:
        """Raise JavaFailed if it has ended."""
        if self._process.poll() is not None:
            raise JavaFailed(f"{self._main} ended with {self._process.returncode}:\n{self.said()[-4_000:]}")

    def stop(self) -> None:
        """Ask it to end, and wait until it has. JavaFailed: it does not."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise JavaFailed(f"{self._main} does not end when it is asked to:\n{self.said()[-4_000:]}") from None

    def kill(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
