"""The controller: brokers' sessions, changes of the cluster's state, what it starts and stops.

`controller.Controller` is the core. What it decides stands in `raylog.actors.cluster`.
"""
