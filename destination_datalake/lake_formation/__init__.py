"""Governance by Lake Formation: the registration of the data location, LF-Tags, grants and opt-ins.

The connector applies these settings idempotently. It never revokes or removes a setting.
"""
