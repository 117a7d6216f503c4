"""Governance of the lake by Lake Formation: the data location, LF-Tags, grants and opt-ins.

The connector applies settings idempotently, and never revokes or removes a setting.
"""
