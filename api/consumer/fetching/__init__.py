"""The fetching half of a consumer, on the client's loop: requests to leaders, and reads of files on the same node."""
