"""Tests on a real Ray, on this machine."""
