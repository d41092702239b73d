"""Decisions of a consumer: options, positions, which records of a fetched piece are visible, records and columns. Pure.
"""
