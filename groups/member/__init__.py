"""A member's side of the protocol, as a state machine: what to send, and what an answer means. Pure."""
