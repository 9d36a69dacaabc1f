"""Flex attention: any mask, as data, and score modifications that are built ahead of time."""
