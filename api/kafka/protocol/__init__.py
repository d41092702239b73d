"""Kafka's wire protocol: messages, their versions, and error codes. `codecs.py` is its face.

    schemas.py          Kafka's descriptions of its messages, read from the package kafka-python
    own_schemas.py      those that it lacks
    message_types.py    a named tuple for each message and each structure in it
    decoder_source.py   the source of a function that decodes one message of one version
    encoder_source.py   the source of a function that encodes it
    wire.py             what these functions call
    codecs.py           the functions, compiled at first use; headers and frames
    api_versions.py     which versions of what are served
    error_codes.py      raylog's errors as Kafka's numbers
"""
