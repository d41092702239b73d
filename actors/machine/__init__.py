"""Sockets, threads, processes, memory and files of one machine. No Ray.

`real_environment.RealEnvironment` is what cores get outside of the simulator; `stream_server` takes streams.
"""
