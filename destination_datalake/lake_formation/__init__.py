"""Lake Formation: data location, LF-Tags, grants and opt-ins, applied idempotently. The connector never revokes any."""
