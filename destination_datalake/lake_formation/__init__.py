"""Lake Formation governance: registers the data location, and applies LF-Tags, grants and opt-ins.

Settings are applied idempotently. The connector never revokes or removes a setting.
"""
