"""What raylog runs on: Ray, and the cluster's own processes there."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class RuntimeUnavailable(RaylogError):
    """Ray, or the raylog cluster on it, is not available."""


class RayUnreachable(RuntimeUnavailable):
    """No Ray cluster answers at the given address."""

    retriable = True
    advice = "Start it, correct RAY_ADDRESS, or unset RAY_ADDRESS to run on a Ray of this machine."

    address: str
    reason: str

    def describe(self) -> str:
        return f"No Ray cluster answers at {self.address}: {self.reason}"


class RayNotStarted(RuntimeUnavailable):
    """A new Ray could not be started on this machine."""

    advice = "Start it with `ray start --head`, which shows more of the reason, and call again."

    reason: str

    def describe(self) -> str:
        return f"Ray could not be started on this machine: {self.reason.rstrip('.')}."


class RayNotAdmitted(RuntimeUnavailable):
    """Ray runs, but refuses this process: it has no token, or a wrong one."""

    advice = (
        "Ray was started with token authentication: set RAY_AUTH_MODE=token, and give the token of that cluster in "
        "RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token."
    )

    address: str

    def describe(self) -> str:
        return f"The Ray cluster at {self.address} asks for a token, and this process has none or a wrong one."


class RayClientRefused(RuntimeUnavailable):
    """This process uses Ray through Ray Client, which cannot carry raylog's streams."""

    advice = (
        "Run this program on a node of the cluster (`ray job submit`, or a task or an actor there), with "
        "RAY_ADDRESS unset or the address of its control store, without ray://."
    )

    address: str

    def describe(self) -> str:
        return f"raylog does not work through Ray Client ({self.address})."


class ClusterNotFound(RuntimeUnavailable):
    """No raylog cluster of this name runs, and this call may not form one."""

    name: str
    reason: str

    def describe(self) -> str:
        return f"No raylog cluster {self.name!r} is running: {self.reason}."


class ClusterNotReady(RuntimeUnavailable):
    """The cluster is starting, or has lost too many of its brokers."""

    retriable = True
    advice = "Wait and call again. If it stays like this, start the missing brokers (`raylog.start` on their nodes)."

    name: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"The raylog cluster {self.name!r} was not ready within {self.timeout_ms} ms: {self.reason}."


class BrokersLeftOut(RuntimeUnavailable):
    """A start asked for fewer brokers than the data directory holds."""

    advice = (
        "Start all of them, or leave `brokers` out. To remove one, drain it, shut the cluster down and delete its "
        "directory."
    )

    path: str
    found: int
    asked: int

    def describe(self) -> str:
        return f"{self.path} holds the data of {self.found} brokers, and {self.asked} were asked for."


class BrokersNotAdded(RuntimeUnavailable):
    """A start named a blank folder on a node where the running cluster has its brokers in another one."""

    advice = (
        "To join the cluster, name the folder that it has on this node, or use `raylog.connect`. To have more brokers "
        "in this one, for good, say so: `raylog start --add-brokers`, `raylog.start(…, add_brokers=True)`. For another "
        "cluster there, give it another name."
    )

    name: str
    path: str
    present: str

    def describe(self) -> str:
        return (
            f"The cluster {self.name!r} runs, with its brokers of this node in {self.present}. Brokers in the blank "
            f"{self.path} would be added to it for good."
        )


class ClusterRunsAlready(RuntimeUnavailable):
    """The directory belongs to a cluster that already runs under another name."""

    advice = (
        "Join it under its present name (`raylog.connect`, or `raylog.start` with that name), or stop it first. A "
        "cluster has one name at a time."
    )

    name: str
    runs_as: str
    where: str

    def describe(self) -> str:
        return f"No cluster can be started as {self.name!r}: the cluster in {self.where} runs as {self.runs_as!r}."


class ControllerLost(RuntimeUnavailable):
    """The controller was lost during a call, which may have been carried out (rule 27)."""

    retriable = True
    advice = "A new controller takes over within seconds: look whether the call was carried out before you repeat it."

    name: str
    call: str
    reason: str

    def describe(self) -> str:
        return f"The controller of {self.name!r} was lost during {self.call}, outcome unknown: {self.reason}."
