"""The gateway for Kafka clients: Kafka's wire protocol in front of raylog's brokers.

`protocol/` has the messages as bytes and as tuples, `rules/` what the gateway decides. Both are pure.

    request_frames.py        requests cut out of the bytes that arrive
    kafka_connection.py      one connection: bytes, order, bounds
    connection_memory.py     what a connection holds, and what it waits for
    listener.py              the door: a TCP listener
    gateway.py               requests to the modules that serve them; its face
    known_topics.py          topics by name or id, and their leaders
    producing.py             Produce
    fetching.py              Fetch
    partition_polls.py       what is open for a connection at leaders, and kept between its fetches
    metadata_answers.py      Metadata, DescribeCluster, FindCoordinator
    offset_answers.py        ListOffsets, OffsetForLeaderEpoch
    committed_offsets.py     OffsetCommit, OffsetFetch
    classic_membership.py    JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    group_descriptions.py    DescribeGroups, ListGroups
    gateway_process.py       all of it as a process beside a broker runs it
    producer_identities.py   InitProducerId
    leader_hints.py          who leads now, said beside an error
"""
