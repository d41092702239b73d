"""Descriptions of groups and transactions as users get them. Pure."""
