"""All that goes over the wire and into raylog's own logs: frames, messages, records, and the names in them. Pure.

`messages` packs and unpacks; each `*_messages` and `*_records` module declares the kinds of one subject. The docstring
of a request says first who sends it, and then what it asks for.
"""
