"""Producers, consumers and groups against one cluster of three brokers, which all these files share."""
