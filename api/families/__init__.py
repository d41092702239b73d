"""Transactions that many processes write under one decision: the family, its members, their requests."""
