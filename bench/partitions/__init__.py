"""Many partitions on one machine, and Apache Kafka beside them: `python -m bench partitions [--kafka HOST:PORT]`.

`subjects.py` is its face; each other module measures one subject.
"""
