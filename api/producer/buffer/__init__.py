"""Records that wait to be sent: batches per partition, room for them, and the futures of what was sent."""
