"""Tests of `raylog.data` on a real Ray."""
