"""Lake Formation: data location, LF-Tags, grants and opt-ins, applied idempotently. Nothing is ever revoked."""
