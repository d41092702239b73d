"""The sending half of a producer, on the client's loop: requests to leaders and to transaction coordinators."""
