"""Governance by Lake Formation: data location, LF-Tags, grants and opt-ins.

Settings are applied idempotently. The connector never revokes any.
"""
